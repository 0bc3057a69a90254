// Package hostsvc is what the guest finds on the network of the tests: traffic servers, and DNS servers with a small zone of every type the tests ask for.
// Everything listens inside namespaces of package netns and runs in the test's own process.
package hostsvc

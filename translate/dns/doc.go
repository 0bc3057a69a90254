// Package dns forwards the guest's name queries to the host's resolvers.
package dns

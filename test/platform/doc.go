// Package platform tests the kernel, not guestwire: each test holds one behaviour that guestwire's design rests on and that documentation leaves open or
// that versions differ in. When one fails on a new kernel, the code that relies on it is named in its comment. They need loopback alone and no privileges;
// where the kernel is too old for a feature the test skips, as guestwire then does without.
package platform

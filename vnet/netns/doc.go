// Package netns gives a network namespace its interface: it joins the namespace,
// or makes one for a command, opens a tap (vnet/tap) inside, configures it, and
// makes sockets there.
//
// # Two processes
//
// Only a process with one thread may join a user namespace, and a Go program never
// is one. So a second process of this binary is inside, the keeper, and the first
// stays where the world is:
//
//	guestwire netns (host)  <--- control socket --->  keeper (inside)
//	   loop, translator                                  tap, netlink, listen(2), connect(2)
//	   holds the tap                                     starts the command and waits for it
//
// The keeper of an existing namespace is forked by hand (join_unsafe.go), joins, and
// runs this binary anew; that of a new one is cloned into it by the runtime. Both
// then run Keep. Descriptors come back by the control socket.
//
// The user namespace that owns the network namespace is asked of the kernel and
// joined, unless it is our own. A new namespace comes with a user namespace, in
// which we are root and nobody else exists, so that no privilege is needed; and with
// mount and PID namespaces, so that what the command leaves behind ends with it.
//
// # Who calls it
//
// Enter and Run on the main goroutine, while a worker is set up; what Namespace has
// beside on the loop. Keep is the whole of the second process.
//
// # What it trusts
//
// The namespace is the user's own, and the keeper is this binary: they are checked
// for mistakes. What runs inside cannot reach the control socket.
//
// # The end
//
// Life tells, on the loop, that an existing namespace has gone: the process that was
// named has ended, or the file that was named has been removed. The keeper ends with
// the control socket, and takes its command along; a command that ends ends the
// keeper, whose exit status is the command's (128 and the signal, as in a shell).
//
// # Limits
//
// One interface. 64 sockets in one request. Interface queue: 2,000 frames.
//
// # What it deliberately does not do
//
// No bridges, no routes but the default ones, no copying of the host's routes, no
// persistent namespaces (ip-netns(8) makes these), no pivot_root: the command sees
// the host's files.
package netns

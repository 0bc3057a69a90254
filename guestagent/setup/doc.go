// Package setup gives a guest its network: it compares what is wanted with what
// is there, changes the difference by netlink, and can take it back.
//
// # Who calls it
//
// `guestwire agent setup`, and guestagent/serve when the host asks; any goroutine,
// which must stay on its thread if that is in a network namespace of its own. A
// lock in Dir keeps two callers, in one process or several, apart.
//
// # How it works
//
// Everything that can be set is a Key with a value, both text; what a machine has
// and what a configuration wants are maps of them. plan is a pure function of
// three maps: wanted, present, and what was there before we changed it for the
// first time (the journal, kept in Dir before anything is changed). It lists
//
//	for what is wanted and differs        present -> wanted
//	for what the journal has and nobody
//	wants any more                        present -> as it was
//
// so applying a configuration twice changes nothing the second time, a new one
// takes back what only the old one wanted, and undoing is applying one that wants
// nothing. What we did not change is never touched. After the changes the machine
// is read again and planned again, three times at most: what then is still to be
// done is an error, whatever the kernel said.
//
// What goes, goes before what comes; otherwise the order is that of the kinds:
// offloads, queues, MTU, link up, addresses, routes, resolvers, host name. A change
// that fails does not keep the others back.
//
// # Where configurations come from
//
// The host, by vsock (Host: sent at once, and again after every change), the
// kernel's command line (FromCmdline), a file (FromFile). What the host sends is
// checked by guestagent/proto; it decides about the guest's network in any case,
// and about nothing else here: names and addresses are matched against what they
// may consist of before they go into a file or an argument.
//
// # Resolvers
//
// Where /etc/resolv.conf is a link to what systemd-resolved keeps and resolvectl is
// there, they are set for the link by resolvectl; otherwise they are written to the
// file, through a link. An undone file that did not exist is left empty.
//
// # Limits
//
// One link, beside lo, which is set up too. Default route and others: table main,
// metric 0 for IPv4 and 512 for IPv6, which is better than that of a router
// advertisement. The kernel has no setting for the buffers of vsock sockets: the
// size is left in Dir for the agent's own.
//
// # What it deliberately does not do
//
// No DHCP (the kernel, udhcpc and others do), no bridges, bonds, VLANs or rules, no
// renaming, nothing that survives a reboot.
package setup

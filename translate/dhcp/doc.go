// Package dhcp gives the guest its one IPv4 and its one IPv6 address, and tells
// it what belongs to them: router, name servers, MTU, names. It speaks DHCPv4
// (RFC 2131, 2132, with rapid commit RFC 4039, classless routes RFC 3442, search
// list RFC 3397, FQDN RFC 4702), plain BOOTP (RFC 1534), and DHCPv6 (RFC 8415,
// RFC 3646, RFC 4704).
//
// Who calls it: the translator, on the worker's loop, with the guest's datagrams
// to ports 67 (IPv4) and 547 (IPv6). Answers go out before Input returns.
//
// What it trusts: nothing in the messages. They are copied first, every length
// is checked before it is used, and nothing in a message changes what is leased.
//
// It has no state: there is one guest, so there is one lease per IP version, and
// it is always the same. Whoever asks for another address is told to start over
// (DHCPNAK; lifetimes of 0 in DHCPv6). Storms of RELEASE or DECLINE therefore
// cost a counter each.
//
// Limits: messages of up to 1500 bytes; client identifiers of up to 255 bytes
// (IPv4) and 130 bytes (IPv6); 4 identity associations per message; 8 name
// servers; 255 bytes (IPv4) and 512 bytes (IPv6) of search list. Replies respect
// the client's maximum message size and leave out what does not fit, the least
// important last.
//
// What it deliberately does not do: no pools, no relays (a message with giaddr,
// or relayed, is dropped), no reconfiguration, no prefix delegation, no temporary
// addresses, no dynamic DNS.
package dhcp

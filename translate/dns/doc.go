// Package dns is the name server that the guest sees: a forwarder that passes
// queries to the host's resolvers and their answers back.
//
// Who calls it: the translator, on the worker's loop: Input with the guest's
// datagrams to port 53 of a --dns-forward address. Sockets and timers call Ready
// and Expired. Name service over TCP and TLS does not come here: tcp.Engine
// translates it, with forward.Policy leading it to the first upstream.
//
// Messages stay opaque. Of a query the header and the one question are looked at,
// of an answer the header and whether the question is the one that was asked.
// Records, EDNS, letter case and the TC bit pass untouched, so every type of
// record works, and what does not exist does not exist (real return codes).
//
// What it trusts: neither side. Guest: sizes and names are checked, the table is
// bounded. Network (catalogue L8): every query goes out under an unpredictable id
// of its own, from one of several connected sockets with ports that the kernel
// picked and that change; an answer counts only if it comes to the right socket,
// from the upstream that was asked, with that id and that question.
//
// States of a query: waiting for an upstream (up to 4 attempts, 1.25 s apart,
// cycling through the upstreams, at once to the next where the host reports an
// ICMP error), then answered, or SERVFAIL after 5 s, or at once when no upstream
// is left. Late answers from any upstream that was asked are still taken.
// Upstreams are asked in the order of resolv.conf; one that let 3 queries in a
// row time out is asked last for 10 s.
//
// Limits: queries of up to 2048 bytes, answers of up to 65,507; 1,024 queries in
// flight (Config.MaxPending), when full the oldest gives way if it is older than
// 1 s; 16 sockets, each for 128 queries or 60 s, closed after 10 s without use.
//
// What it deliberately does not do: no cache, no zones of its own, no DNSSEC, no
// rewriting, no reading of files: Resolver says what the upstreams are, and
// ParseResolvConf is a pure function for whoever reads the file.
package dns

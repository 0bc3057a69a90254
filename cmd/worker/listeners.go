package worker

import (
	"bufio"
	"encoding/hex"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// bound is what something is bound to, of TCP or UDP.
type bound struct {
	udp  bool
	at   netip.Addr
	port uint16
}

// States of sockets in /proc/net (proc_pid_net(5)): TCP that listens, UDP that is not
// connected.
const (
	tcpListen = "0A"
	udpBound  = "07"
)

// listening reads who listens in the namespace that proc (/proc/PID) shows. first to
// last are the ports of the kernel's choice, which are nobody's service if UDP.
func listening(proc string, first, last uint16) (list []bound) {
	for _, f := range []struct {
		name, state string
		udp         bool
	}{{"tcp", tcpListen, false}, {"tcp6", tcpListen, false}, {"udp", udpBound, true}, {"udp6", udpBound, true}} {
		file, err := os.Open(proc + "/net/" + f.name)
		if err != nil {
			continue // without IPv6
		}
		s := bufio.NewScanner(file)
		s.Scan() // the heading
		for s.Scan() {
			fields := strings.Fields(s.Text())
			if len(fields) < 4 {
				continue
			}
			if fields[3] != f.state {
				if !f.udp {
					break // the kernel lists those that listen first
				}
				continue
			}
			at, ok := procAddr(fields[1])
			if ok && !(f.udp && at.Port() >= first && at.Port() <= last) {
				list = append(list, bound{f.udp, at.Addr(), at.Port()})
			}
		}
		file.Close()
	}
	return list
}

// procAddr reads ADDRESS:PORT in hex: the address in 32-bit words of the host's byte
// order, which is taken for little-endian.
func procAddr(s string) (netip.AddrPort, bool) {
	a, p, _ := strings.Cut(s, ":")
	raw, err := hex.DecodeString(a)
	port, perr := strconv.ParseUint(p, 16, 16)
	if err != nil || perr != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(raw); i += 4 {
		raw[i], raw[i+1], raw[i+2], raw[i+3] = raw[i+3], raw[i+2], raw[i+1], raw[i]
	}
	addr, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr.Unmap(), uint16(port)), ok
}

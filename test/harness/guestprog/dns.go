package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sort"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

var dnsTypes = map[string]dnsmessage.Type{
	"A": dnsmessage.TypeA, "AAAA": dnsmessage.TypeAAAA, "MX": dnsmessage.TypeMX, "TXT": dnsmessage.TypeTXT, "PTR": dnsmessage.TypePTR,
	"CNAME": dnsmessage.TypeCNAME, "SRV": dnsmessage.TypeSRV, "CAA": 257,
}

// dnsQuery asks one question and prints the answers sorted; a response code other than success is printed as its name.
func dnsQuery(args []string) error {
	if err := want(args, 4, "udp|tcp SERVER NAME TYPE"); err != nil {
		return err
	}
	name, err := dnsmessage.NewName(strings.TrimSuffix(args[2], ".") + ".")
	if err != nil {
		return err
	}
	t, ok := dnsTypes[args[3]]
	if !ok {
		return fmt.Errorf("unknown type %s", args[3])
	}
	id := uint16(rand.Uint32())
	q := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: id, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: name, Type: t, Class: dnsmessage.ClassINET}},
	}
	b, err := q.Pack()
	if err != nil {
		return err
	}
	reply, err := exchange(args[0], net.JoinHostPort(args[1], "53"), b)
	if err != nil {
		return err
	}
	var m dnsmessage.Message
	if err := m.Unpack(reply); err != nil {
		return err
	}
	if m.ID != id || !m.Response {
		return errors.New("the answer is not to our question")
	}
	if m.RCode != dnsmessage.RCodeSuccess {
		fmt.Println(m.RCode)
		return nil
	}
	if m.Truncated {
		fmt.Println("truncated")
	}
	var out []string
	for _, a := range m.Answers {
		out = append(out, answerText(a))
	}
	sort.Strings(out)
	fmt.Println(strings.Join(out, "\n"))
	return nil
}

func answerText(a dnsmessage.Resource) string {
	switch r := a.Body.(type) {
	case *dnsmessage.AResource:
		return netip.AddrFrom4(r.A).String()
	case *dnsmessage.AAAAResource:
		return netip.AddrFrom16(r.AAAA).String()
	case *dnsmessage.MXResource:
		return fmt.Sprintf("%d %s", r.Pref, r.MX)
	case *dnsmessage.TXTResource:
		return strings.Join(r.TXT, "|")
	case *dnsmessage.PTRResource:
		return r.PTR.String()
	case *dnsmessage.CNAMEResource:
		return "CNAME " + r.CNAME.String()
	case *dnsmessage.SRVResource:
		return fmt.Sprintf("%d %d %d %s", r.Priority, r.Weight, r.Port, r.Target)
	case *dnsmessage.UnknownResource:
		return fmt.Sprintf("%d %x", r.Type, r.Data)
	}
	return fmt.Sprintf("%T", a.Body)
}

func exchange(network, server string, q []byte) ([]byte, error) {
	var err error
	for range 3 {
		var reply []byte
		if reply, err = exchangeOnce(network, server, q); err == nil {
			return reply, nil
		}
	}
	return nil, err
}

func exchangeOnce(network, server string, q []byte) ([]byte, error) {
	c, err := net.DialTimeout(network, server, 5*time.Second)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	b := make([]byte, 65536)
	if network == "udp" {
		if _, err := c.Write(q); err != nil {
			return nil, err
		}
		n, err := c.Read(b)
		return b[:n], err
	}
	// RFC 1035 section 4.2.2: a length of two octets before each message.
	if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...)); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(c, b[:2]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(b))
	_, err = io.ReadFull(c, b[:n])
	return b[:n], err
}

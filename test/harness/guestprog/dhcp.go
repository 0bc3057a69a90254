package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/dhcpv6/nclient6"
)

// dhcp6 takes an address in two exchanges and then in one (rapid commit), and prints what the replies say.
func dhcp6(args []string) error {
	if err := want(args, 1, "IFACE"); err != nil {
		return err
	}
	c, err := nclient6.New(args[0], nclient6.WithTimeout(3*time.Second), nclient6.WithRetry(3))
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	adv, err := c.Solicit(ctx)
	if err != nil {
		return fmt.Errorf("solicit: %w", err)
	}
	reply, err := c.Request(ctx, adv)
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	printReply("", reply)
	rapid, err := c.RapidSolicit(ctx)
	if err != nil {
		return fmt.Errorf("rapid commit: %w", err)
	}
	printReply("rapid-", rapid)
	return nil
}

func printReply(prefix string, m *dhcpv6.Message) {
	if ia := m.Options.OneIANA(); ia != nil {
		for _, a := range ia.Options.Addresses() {
			fmt.Printf("%saddress=%s\n", prefix, a.IPv6Addr)
		}
	}
	fmt.Printf("%sdns=%s\n", prefix, join(m.Options.DNS()))
	if s := m.Options.DomainSearchList(); s != nil {
		fmt.Printf("%ssearch=%s\n", prefix, strings.Join(s.Labels, ","))
	}
}

func join[T fmt.Stringer](v []T) string {
	var s []string
	for _, x := range v {
		s = append(s, x.String())
	}
	return strings.Join(s, ",")
}

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"guestwire/test/harness/traffic"
)

// serve answers on one port, TCP and UDP, IPv4 and IPv6, until it is killed.
func serve(args []string) error {
	if err := want(args, 1, "PORT"); err != nil {
		return err
	}
	if port, ok := strings.CutPrefix(args[0], "vsock:"); ok {
		return serveVSock(port)
	}
	l, err := net.Listen("tcp", ":"+args[0])
	if err != nil {
		return err
	}
	s := traffic.NewServer()
	// One socket per family: an answer must leave from the address that was asked, which a wildcard socket of a host with one address per family gives.
	for _, network := range []string{"udp4", "udp6"} {
		port, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		u, err := net.ListenUDP(network, &net.UDPAddr{Port: port})
		if err != nil {
			return err
		}
		go s.ServeUDP(u)
	}
	fmt.Println("serving")
	s.Serve(l)
	return nil
}

func stream(what string, args []string) error {
	if err := want(args, 1, "ADDR ..."); err != nil {
		return err
	}
	d, number := dialer(args[0], 0), numbers(args)
	switch what {
	case "get", "put", "slow", "half":
		chunk := int(number(3))
		if chunk == 0 {
			chunk = 256 << 10
		}
		f := map[string]func() error{
			"get":  func() error { return traffic.GetIn(d, number(1), uint64(number(2)), chunk, limit) },
			"put":  func() error { return traffic.PutIn(d, number(1), uint64(number(2)), chunk, limit) },
			"slow": func() error { return traffic.GetIn(slowly(d), number(1), uint64(number(2)), chunk, limit) },
			"half": func() error { return traffic.Half(d, number(1), uint64(number(2)), args[len(args)-1], limit) },
		}[what]
		start := time.Now()
		if err := f(); err != nil {
			return err
		}
		fmt.Printf("%d bytes, hash correct, %.1f MB/s\n", number(1), float64(number(1))/1e6/time.Since(start).Seconds())
		return nil
	case "reset-in":
		return traffic.ResetByServer(d, limit)
	case "reset-out":
		return traffic.ResetByClient(d, args[len(args)-1], limit)
	case "refused":
		return traffic.Refused(d)
	case "parallel":
		return traffic.Parallel(d, int(number(1)), int(number(2)), limit)
	case "ask":
		answer, err := traffic.Ask(d, strings.Join(args[1:], " "), limit)
		fmt.Println(answer)
		return err
	}
	return errors.New("no such check")
}

// numbers gives arguments as numbers, 0 where there is none.
func numbers(args []string) func(i int) int64 {
	return func(i int) int64 {
		if i >= len(args) {
			return 0
		}
		n, _ := strconv.ParseInt(args[i], 10, 64)
		return n
	}
}

// measure prints bytes per second, or the whole time of a churn in microseconds.
func measure(what string, args []string) error {
	if err := want(args, 2, "ADDR N ..."); err != nil {
		return err
	}
	number := numbers(args)
	d, n := dialer(args[0], int(number(3))), number(1)
	switch what {
	case "blast":
		rate, err := traffic.Blast(d, n, int(number(2)), limit)
		fmt.Printf("%.0f\n", rate)
		return err
	case "drain":
		rate, err := traffic.Drain(d, n, int(number(2)), limit)
		fmt.Printf("%.0f\n", rate)
		return err
	case "churn":
		took, err := traffic.Churn(d, int(n), limit)
		fmt.Println(took.Microseconds())
		return err
	}
	return nil
}

func udpSizes(args []string) error {
	if err := want(args, 1, "ADDR:PORT [SIZE...]"); err != nil {
		return err
	}
	c, err := net.Dial("udp", args[0])
	if err != nil {
		return err
	}
	defer c.Close()
	sizes := traffic.UDPSizes
	if len(args) > 1 {
		sizes = nil
		for _, a := range args[1:] {
			n, err := strconv.Atoi(a)
			if err != nil {
				return err
			}
			sizes = append(sizes, n)
		}
	}
	return traffic.EchoSizes(c, sizes)
}

func udpAsk(args []string) error {
	if err := want(args, 2, "ADDR:PORT TEXT"); err != nil {
		return err
	}
	c, err := net.Dial("udp", args[0])
	if err != nil {
		return err
	}
	defer c.Close()
	answer, err := traffic.AskUDP(c, strings.Join(args[1:], " "))
	fmt.Println(answer)
	return err
}

// udpFlood sends COUNT datagrams of SIZE bytes from FLOWS sockets as fast as it can.
func udpFlood(args []string) error {
	if err := want(args, 4, "ADDR:PORT SIZE FLOWS COUNT"); err != nil {
		return err
	}
	var n [3]int
	for i := range n {
		v, err := strconv.Atoi(args[i+1])
		if err != nil || v < 1 {
			return fmt.Errorf("not a number: %s", args[i+1])
		}
		n[i] = v
	}
	conns := make([]net.Conn, n[1])
	for i := range conns {
		c, err := net.Dial("udp", args[0])
		if err != nil {
			return err
		}
		defer c.Close()
		conns[i] = c
	}
	b, sent, start := make([]byte, n[0]), 0, time.Now()
	for i := range n[2] {
		if _, err := conns[i%len(conns)].Write(b); err == nil {
			sent++
		} else if !errors.Is(err, os.ErrDeadlineExceeded) {
			time.Sleep(time.Millisecond)
		}
	}
	fmt.Printf("sent=%d seconds=%.3f\n", sent, time.Since(start).Seconds())
	return nil
}

package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"guestwire/test/harness/backend"
	"guestwire/test/harness/netns"
	"guestwire/test/harness/spawn"
	"guestwire/test/harness/traffic"
)

func (d *demo) lease() error {
	if _, err := d.g.Check("ip link set eth0 up"); err != nil {
		return err
	}
	out, err := d.in("udhcpc -i eth0 -n -q -O mtu -O search")
	if err != nil {
		return err
	}
	tell(out, "obtained")
	out, err = d.in("ip -4 addr show dev eth0; ip route; cat /etc/resolv.conf")
	if err != nil {
		return err
	}
	tell(out, "inet ", "default", "nameserver")
	return wants(out, backend.Guest4+"/24", "default via "+backend.Gateway4, "nameserver "+backend.DNS4)
}

func (d *demo) ping() error {
	for _, a := range []string{backend.Gateway4, netns.FarV4} {
		out, err := d.in("ping -c 3 -i 0.2 -W 3 " + a)
		if err != nil {
			return err
		}
		tell(out, "received", "round-trip")
		if err := wants(out, "3 packets received"); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) names() error {
	for _, q := range []struct{ command, want string }{
		{"guestprog dns udp 10.0.2.3 www.lab.example A", "192.0.2.80"},
		{"guestprog dns tcp 10.0.2.3 lab.example MX", "10 mail.lab.example."},
		{"ping -c 1 -W 3 service.lab.example", netns.ServiceV4},
	} {
		out, err := d.in(q.command)
		if err != nil {
			return err
		}
		tell(out, q.want)
		if err := wants(out, q.want); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) ipv6() error {
	wait := "for i in $(seq 50); do ip -6 addr show dev eth0 scope global | grep inet6 | grep -qv tentative && break; sleep 0.2; done"
	if _, err := d.g.Check(wait); err != nil {
		return err
	}
	out, err := d.in("ip -6 addr show dev eth0 scope global; ip -6 route show default")
	if err != nil {
		return err
	}
	tell(out, "inet6", "default")
	if err := wants(out, backend.Prefix6, "default via fe80::"); err != nil {
		return err
	}
	if out, err = d.in("ping -c 3 -i 0.2 -W 3 " + netns.FarV6); err != nil {
		return err
	}
	tell(out, "received", "round-trip")
	if out, err = d.in("guestprog dns udp " + backend.DNS6 + " www.lab.example AAAA"); err != nil {
		return err
	}
	tell(out)
	return wants(out, "2001:db8:80::80")
}

const fileSize = 64 << 20

func (d *demo) download() error {
	l, err := d.w.Host.Listen("tcp", "127.0.0.1:8000")
	if err != nil {
		return err
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, traffic.NewStream(1, fileSize)); err != nil {
		return err
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(fileSize))
		_, _ = io.Copy(w, traffic.NewStream(1, fileSize))
	})}
	go func() { _ = srv.Serve(l) }()
	d.later(func() { srv.Close() })
	fmt.Printf("   host: a web server listens on 127.0.0.1:8000, which the VM sees as 10.0.2.2:8000\n")
	start := time.Now()
	if _, err := d.in("wget -q -O /tmp/file http://10.0.2.2:8000/file"); err != nil {
		return err
	}
	took := time.Since(start)
	out, err := d.in("ls -l /tmp/file && sha256sum /tmp/file && rm /tmp/file")
	if err != nil {
		return err
	}
	fmt.Printf("       %d MiB in %.1f s; SHA-256 there and here:\n       %.32s...\n       %.32s...\n", fileSize>>20, took.Seconds(), sumOf(out), fmt.Sprintf("%x", sum.Sum(nil)))
	return wants(out, fmt.Sprintf("%x", sum.Sum(nil)))
}

func sumOf(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}

func (d *demo) forward() error {
	const page = "hello from inside the VM"
	if _, err := d.in("mkdir -p /tmp/www && echo '" + page + "' > /tmp/www/index.html && httpd -h /tmp/www -p 80"); err != nil {
		return err
	}
	for _, at := range []struct {
		from *netns.NS
		addr string
		who  string
	}{{d.w.Host, "127.0.0.1:8080", "host"}, {d.w.Peer, net.JoinHostPort(netns.HostV6, "8080"), "another machine"}} {
		fmt.Printf("   %s$ curl http://%s/\n", at.who, at.addr)
		body, err := fetch(at.from, at.addr)
		if err != nil {
			return err
		}
		tell(body)
		if err := wants(body, page); err != nil {
			return err
		}
	}
	return nil
}

// fetch is a web client inside a namespace.
func fetch(from *netns.NS, addr string) (string, error) {
	conn, err := from.Dial("tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.0\r\nHost: %s\r\n\r\n", addr); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return "", err
	}
	_, body, ok := strings.Cut(string(answer), "\r\n\r\n")
	if !ok {
		return "", errors.New("no HTTP answer: " + string(answer))
	}
	return body, nil
}

func (d *demo) throughput() error {
	p, err := spawn.Start(spawn.Options{NS: d.w.Peer.Name}, d.lab.Program("iperf3", "-s", "--forceflush")...)
	if err != nil {
		return err
	}
	d.later(p.Kill)
	if err := p.WaitOutput("listening", 5*time.Second); err != nil {
		return err
	}
	for _, way := range []string{"", " -R"} {
		out, err := d.in("iperf3 -c " + netns.ServiceV4 + " -t 3" + way)
		if err != nil {
			return err
		}
		tell(out, "receiver")
		if err := wants(out, "bits/sec"); err != nil {
			return err
		}
	}
	return nil
}

func wants(out string, words ...string) error {
	for _, w := range words {
		if !strings.Contains(out, w) {
			return fmt.Errorf("expected %q in:\n%s", w, out)
		}
	}
	return nil
}

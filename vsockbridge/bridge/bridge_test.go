package bridge

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// bridged is a bridge that runs.
type bridged struct {
	*Bridge
	stop   func()
	result func() error // waits for the end of Run
}

// running starts a bridge.
func running(t *testing.T, from, to string) bridged {
	t.Helper()
	b, err := newBridge(t, from, to)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- b.Run(ctx) }()
	var once sync.Once
	var res error
	wait := func() error {
		once.Do(func() {
			select {
			case res = <-ran:
			case <-time.After(20 * time.Second):
				t.Error("the bridge does not end")
			}
		})
		return res
	}
	t.Cleanup(func() {
		cancel()
		wait()
		b.Close()
	})
	return bridged{b, cancel, wait}
}

func newBridge(t *testing.T, from, to string) (*Bridge, error) {
	c := Config{Log: t.Logf}
	var err error
	if c.From, err = Parse(from); err != nil {
		t.Fatal(err)
	}
	if c.To, err = Parse(to); err != nil {
		t.Fatal(err)
	}
	return New(c)
}

// server answers each connection of a UNIX socket by f.
func server(t *testing.T, network, path string, f func(c *net.UnixConn)) {
	t.Helper()
	l, err := net.Listen(network, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				f(c.(*net.UnixConn))
			}()
		}
	}()
}

// upper answers what it has read, once all is read, in upper case: it needs the
// half-close.
func upper(c *net.UnixConn) {
	b, _ := io.ReadAll(c)
	c.Write(bytes.ToUpper(b))
}

func dial(t *testing.T, network, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// ask sends a question, half-closes, and reads the answer to its end.
func ask(t *testing.T, c net.Conn, question string) string {
	t.Helper()
	io.WriteString(c, question)
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Error(err)
	}
	b, err := io.ReadAll(c)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

func TestStreams(t *testing.T) {
	dir := t.TempDir()
	server(t, "unix", dir+"/upper", upper)
	b := running(t, "tcp-listen:127.0.0.1:0", "unix-connect:"+dir+"/upper")
	running(t, "unix-listen:"+dir+"/front,mode=0640", "tcp-connect:"+strings.TrimPrefix(b.Where(), "tcp-listen:"))
	long := strings.Repeat("abc", 100000)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			q := fmt.Sprint(i, long)
			if got := ask(t, dial(t, "unix", dir+"/front"), q); got != strings.ToUpper(q) {
				t.Errorf("client %d: %d bytes, want %d", i, len(got), len(q))
			}
		})
	}
	wg.Wait()
	st, err := os.Stat(dir + "/front")
	if err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("the socket has mode %v, %v", st.Mode(), err)
	}
	stats := map[string]uint64{}
	b.Each(func(name string, v uint64) { stats[name] = v })
	if stats["started"] != 50 || stats["open"] != 0 && stats["open"] > 50 {
		t.Errorf("stats %v", stats)
	}
}

func TestOnce(t *testing.T) {
	dir := t.TempDir()
	server(t, "unix", dir+"/upper", upper)
	b := running(t, "unix-listen:"+dir+"/front,once", "unix-connect:"+dir+"/upper")
	if got := ask(t, dial(t, "unix", dir+"/front"), "a"); got != "A" {
		t.Errorf("got %q", got)
	}
	if err := b.result(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir + "/front"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func TestCommand(t *testing.T) {
	dir := t.TempDir()
	running(t, "unix-listen:"+dir+"/front", "exec:tr a-z A-Z; echo ', done' $((1+2))")
	for range 3 {
		if got := ask(t, dial(t, "unix", dir+"/front"), "words"); got != "WORDS, done 3\n" {
			t.Errorf("got %q", got)
		}
	}
}

// A command that does not care for its input is ended with its connection, and
// what it has started as well.
func TestCommandIsEnded(t *testing.T) {
	dir := t.TempDir()
	b := running(t, "unix-listen:"+dir+"/front,once", "exec:sleep 1000 <&- >&- & echo $!; wait")
	c := dial(t, "unix", dir+"/front")
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := b.result(); err != nil {
		t.Error(err)
	}
	status := "/proc/" + strings.TrimSpace(line) + "/status"
	for end := time.Now().Add(10 * time.Second); ; {
		b, err := os.ReadFile(status)
		if err != nil || bytes.Contains(b, []byte("State:\tZ")) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("what the command started lives on: %s", b)
		}
	}
}

// A server that comes later is waited for, by those who want that.
func TestWait(t *testing.T) {
	dir := t.TempDir()
	running(t, "unix-listen:"+dir+"/front", "unix-connect:"+dir+"/late,wait=20s")
	running(t, "unix-listen:"+dir+"/hasty", "unix-connect:"+dir+"/late")
	if got := ask(t, dial(t, "unix", dir+"/hasty"), ""); got != "" {
		t.Errorf("got %q from nobody", got)
	}
	c := dial(t, "unix", dir+"/front")
	io.WriteString(c, "patience ")
	server(t, "unix", dir+"/late", upper)
	if got := ask(t, c, "pays"); got != "PATIENCE PAYS" {
		t.Errorf("got %q", got)
	}
}

func TestMessages(t *testing.T) {
	dir := t.TempDir()
	server(t, "unixpacket", dir+"/packets", func(c *net.UnixConn) {
		buf := make([]byte, 1000)
		for {
			n, err := c.Read(buf)
			if err != nil || n == 0 {
				return
			}
			fmt.Fprintf(c, "%d bytes", n)
		}
	})
	// Over a framed stream in the middle, as over vsock.
	running(t, "unix-listen:"+dir+"/stream", "unix-connect:"+dir+"/packets,type=seqpacket")
	running(t, "unix-listen:"+dir+"/middle,frame", "unix-connect:"+dir+"/packets,type=seqpacket")
	running(t, "unix-listen:"+dir+"/front,type=seqpacket", "unix-connect:"+dir+"/middle,frame")
	c := dial(t, "unixpacket", dir+"/front")
	for _, n := range []int{1, 999, 20} {
		c.Write(make([]byte, n))
	}
	buf := make([]byte, 1000)
	for _, want := range []string{"1 bytes", "999 bytes", "20 bytes"} {
		n, err := c.Read(buf)
		if got := string(buf[:n]); err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}

// Datagrams go to a stream in frames, and from there to a datagram socket; the
// receiver outlives the connection.
func TestDatagrams(t *testing.T) {
	dir := t.TempDir()
	end, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: dir + "/end", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	end.SetReadDeadline(time.Now().Add(20 * time.Second))
	running(t, "unix-recv:"+dir+"/log", "unix-connect:"+dir+"/middle,frame,wait=20s")
	c := dial(t, "unixgram", dir+"/log")
	buf := make([]byte, 100)
	b := running(t, "unix-listen:"+dir+"/middle,frame", "unix-connect:"+dir+"/end,type=dgram")
	for _, m := range []string{"first", "second, longer"} {
		io.WriteString(c, m)
		n, err := end.Read(buf)
		if got := string(buf[:n]); err != nil || got != m {
			t.Fatalf("got %q, %v, want %q", got, err, m)
		}
	}
	b.stop()
	b.result()
	b.Close()
	running(t, "unix-listen:"+dir+"/middle,frame", "unix-connect:"+dir+"/end,type=dgram")
	for range 100 { // what is sent before the receiver has noticed is lost
		io.WriteString(c, "third")
		end.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if n, err := end.Read(buf); err == nil && string(buf[:n]) == "third" {
			return
		}
	}
	t.Error("nothing arrives by the second connection")
}

// What a bridge with one client cannot do is its error.
func TestFailures(t *testing.T) {
	dir := t.TempDir()
	server(t, "unix", dir+"/gone", func(*net.UnixConn) {})
	server(t, "unix", dir+"/http", func(c *net.UnixConn) { io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n") })
	os.WriteFile(dir+"/file", nil, 0o600)
	for _, tt := range []struct{ from, to, says string }{
		{"exec:true", "unix-connect:" + dir + "/nobody", "no such file"},
		{"unix-connect:" + dir + "/nobody", "exec:true", "no such file"},
		{"exec:true", "uds:" + dir + "/gone:22", "wait=30s"},
		{"exec:true", "uds:" + dir + "/http:22", "no vsock socket"},
		{"unix-listen:" + dir + "/file", "exec:true", "not a socket"},
		{"exec:true", "unix-recv:" + dir + "/x", "first address"},
		{"stdio", "stdio", "only one"},
	} {
		t.Run(tt.from+" "+filepath.Base(tt.to), func(t *testing.T) {
			b, err := newBridge(t, tt.from, tt.to)
			if err == nil {
				err = b.Run(context.Background())
				b.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want %q in it", err, tt.says)
			}
		})
	}
}

// A client of the hybrid protocol reads its line and no more, in whatever pieces
// it comes, and half-closes like any.
func TestGuestPort(t *testing.T) {
	dir := t.TempDir()
	for i, answer := range [][]string{{"OK 1073741824\n"}, {"O", "K ", "5\n"}, {"OK 7\nearly"}} {
		path := fmt.Sprintf("%s/vm%d", dir, i)
		early := strings.TrimPrefix(strings.Join(answer, "")[strings.Index(strings.Join(answer, ""), "\n"):], "\n")
		server(t, "unix", path, func(c *net.UnixConn) {
			r := bufio.NewReader(c)
			if line, _ := r.ReadString('\n'); line != "CONNECT 22\n" {
				t.Errorf("got %q", line)
			}
			for _, s := range answer {
				io.WriteString(c, s)
			}
			b, _ := io.ReadAll(r)
			c.Write(bytes.ToUpper(b))
		})
		running(t, "unix-listen:"+path+".front", "uds:"+path+":22")
		if got := ask(t, dial(t, "unix", path+".front"), "to sshd"); got != early+"TO SSHD" {
			t.Errorf("got %q", got)
		}
	}
}

// Clients beyond the limit wait, and are served.
func TestMaxConnections(t *testing.T) {
	dir := t.TempDir()
	server(t, "unix", dir+"/upper", upper)
	c := Config{MaxConnections: 2}
	c.From, _ = Parse("unix-listen:" + dir + "/front")
	c.To, _ = Parse("unix-connect:" + dir + "/upper")
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- b.Run(ctx) }()
	var clients []net.Conn
	for range 10 {
		clients = append(clients, dial(t, "unix", dir+"/front"))
	}
	for i, c := range clients {
		if got := ask(t, c, fmt.Sprint("c", i)); got != fmt.Sprint("C", i) {
			t.Errorf("client %d got %q", i, got)
		}
	}
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
}

// A thousand clients later there are as many descriptors as before.
func TestNoDescriptorLeaks(t *testing.T) {
	dir := t.TempDir()
	server(t, "unix", dir+"/upper", upper)
	b := running(t, "unix-listen:"+dir+"/front", "unix-connect:"+dir+"/upper")
	open := func() uint64 {
		var n uint64
		b.Each(func(name string, v uint64) {
			if name == "open" {
				n = v
			}
		})
		return n
	}
	var base int
	for round := range 11 {
		for i := range 100 {
			c, err := net.Dial("unix", dir+"/front")
			if err != nil {
				t.Fatal(err)
			}
			if i%3 == 0 {
				c.Close() // at once
				continue
			}
			ask(t, c, "x")
			c.Close()
		}
		for end := time.Now().Add(10 * time.Second); open() > 0 && time.Now().Before(end); {
		}
		n := descriptors(t)
		if round == 0 {
			base = n
		} else if round == 10 && n > base+20 {
			t.Errorf("%d descriptors, %d after the first round", n, base)
		}
	}
}

func descriptors(t *testing.T) int {
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

package guestmem

import (
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMapLogRefuses(t *testing.T) {
	fd := memfd(t, "logrefuse", 2*page)
	for _, c := range []struct {
		name         string
		size, offset uint64
	}{
		{"empty", 0, 0},
		{"sum wraps", top, 2},
		{"beyond files", 1 << 63, 0},
		{"beyond the file", page, page + 4},
		{"one byte beyond the file", 2*page + 1, 0},
		{"odd offset", 8, 2},
	} {
		if l, err := MapLog(fd, c.size, c.offset); err == nil {
			l.Close()
			t.Errorf("%s: accepted", c.name)
		}
	}
	if n := mappings(t, "logrefuse"); n != 0 {
		t.Errorf("%d mappings left behind", n)
	}
}

// The bytes of the log are compared with a plain model: bit n%8 of byte n/8 is
// page n (vhost-user, "Migration").
func TestMark(t *testing.T) {
	const size, offset = 61, page + 8 // 488 pages
	fd := memfd(t, "log", 3*page)
	l, err := MapLog(fd, size, offset)
	if err != nil {
		t.Fatal(err)
	}
	file := make([]byte, 3*page)
	model := make([]byte, 3*page)
	rng := rand.New(rand.NewPCG(1, 2))
	mark := func(gpa, n uint64) {
		l.Mark(gpa, n)
		for a := gpa; n > 0 && a-gpa < n && a/page < size*8; a = (a/page + 1) * page {
			model[offset+a/page/8] |= 1 << (a / page % 8)
		}
	}
	mark(0, 1)
	mark(page-1, 2)
	mark(7*page, page)
	mark((size*8-1)*page, 100*page) // clipped at the last page
	mark(size*8*page, page)         // no bit for it
	mark(5*page, 0)
	for range 40 {
		mark(rng.Uint64N(size*8*page+4*page), rng.Uint64N(3*page))
	}
	l.Mark(top, 1)
	l.Mark(top, 2)
	l.Mark(top-10, top)
	if _, err := unix.Pread(fd, file, 0); err != nil {
		t.Fatal(err)
	}
	for i := range file {
		if file[i] != model[i] {
			t.Errorf("byte %d of the log is %08b, want %08b", i-offset, file[i], model[i])
		}
	}
	l.Close()
	l.Close()
	l.Mark(0, 1)
	if n := mappings(t, "memfd:log"); n != 0 {
		t.Errorf("%d mappings left", n)
	}
}

func TestMarkIsBounded(t *testing.T) {
	fd := memfd(t, "bounded", page)
	l, err := MapLog(fd, 16, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.Mark(0, top) // ends at once, at the end of the log
	var b [17]byte
	if _, err := unix.Pread(fd, b[:], 0); err != nil {
		t.Fatal(err)
	}
	for i, v := range b[:16] {
		if v != 0xff {
			t.Errorf("byte %d is %#x", i, v)
		}
	}
	if b[16] != 0 {
		t.Error("marked beyond the log")
	}
}

func TestNilLog(t *testing.T) {
	var l *Log
	l.Mark(0, page)
	l.Close()
}

func TestCovers(t *testing.T) {
	fd := memfd(t, "covers", page)
	l, err := MapLog(fd, 4, 0) // 32 pages
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, c := range []struct {
		gpa, size uint64
		want      bool
	}{{0, 32 * page, true}, {0, 32*page + 1, false}, {31 * page, page, true}, {32 * page, 1, false}} {
		if got := l.Covers(FromBytes(c.gpa, 0, make([]byte, c.size))); got != c.want {
			t.Errorf("Covers(%#x, %#x) = %v", c.gpa, c.size, got)
		}
	}
	if !l.Covers(nil) {
		t.Error("the log does not cover no memory")
	}
}

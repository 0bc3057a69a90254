package guest

import (
	"bytes"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The layout is that of buffer-format.rst: 110 bytes of header with hexadecimal fields, the name with its zero, the data, each padded to 4.
func TestArchiveLayout(t *testing.T) {
	a := NewArchive()
	a.File("bin/tool", []byte("hello"), 0o755)
	a.Link("bin/alias", "tool")
	b := a.Bytes()
	type found struct {
		mode uint64
		data string
	}
	got := map[string]found{}
	var order []string
	field := func(at, i int) uint64 {
		v, err := strconv.ParseUint(string(b[at+6+8*i:at+14+8*i]), 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for at := 0; ; {
		if string(b[at:at+6]) != "070701" {
			t.Fatalf("no magic at %d", at)
		}
		mode, size, nameLen := field(at, 1), int(field(at, 6)), int(field(at, 11))
		name := string(b[at+110 : at+110+nameLen-1])
		data := (at + 110 + nameLen + 3) &^ 3
		if b[at+110+nameLen-1] != 0 {
			t.Fatalf("%s: no zero behind the name", name)
		}
		if name == "TRAILER!!!" {
			break
		}
		got[name], order = found{mode, string(b[data : data+size])}, append(order, name)
		at = (data + size + 3) &^ 3
	}
	want := map[string]found{"bin": {0o040755, ""}, "bin/tool": {0o100755, "hello"}, "bin/alias": {0o120777, "tool"}}
	for name, w := range want {
		if got[name] != w {
			t.Errorf("%s: %o %q, want %o %q", name, got[name].mode, got[name].data, w.mode, w.data)
		}
	}
	if !slices.Equal(order, []string{"bin", "bin/alias", "bin/tool"}) {
		t.Errorf("order %q: a folder has to come before what is in it", order)
	}
}

// An independent reader agrees, where there is one.
func TestArchiveByBusybox(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("no busybox here")
	}
	a := NewArchive()
	a.File("etc/a", []byte("x"), 0o644)
	a.Dir("empty")
	cmd := exec.Command(busybox, "cpio", "-t")
	cmd.Stdin = bytes.NewReader(a.Bytes())
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(out)); !slices.Equal(got, []string{"empty", "etc", "etc/a"}) {
		t.Errorf("busybox reads %q", got)
	}
}

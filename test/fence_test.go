package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The fence holds docs/design.md, "Rooms": imports only go down, unsafe stays
// in files that say so, and the rooms that move data keep to the loop.

const module = "guestwire/"

// leaves are the rooms that anyone may import; they import only each other.
var leaves = []string{"vring/guestmem", "vring/eventloop", "vring/unixsock", "vnet/link", "translate/wire", "vsockbridge/relay", "guestagent/proto"}

// rule lists what a room and the rooms below it may import beside leaves,
// itself and the rooms below itself.
type rule struct {
	room    string
	imports []string
}

// rules are tried in order: the first whose room fits is the one that counts.
var rules = []rule{
	{"vring/vhostuser", []string{"vring"}},
	{"vring/vhostkern", nil},
	{"vring/vringtest", []string{"vring"}},
	{"vring", nil},
	{"vnet/vhostnet", []string{"vring", "vring/vhostkern", "vnet"}},
	{"vnet", []string{"vring", "vring/vhostuser"}},
	{"vsockbridge", []string{"vring", "vring/vhostuser"}},
	{"translate", nil},
	{"guestagent/redirect", []string{"vsockbridge/bridge"}}, // its rules are bridges, whose flows it may join in a faster way
	{"guestagent", nil},
	{"cmd", []string{"vring", "vring/vhostuser", "vring/vhostkern", "vnet", "translate", "vsockbridge", "guestagent"}},
	{"test", []string{"cmd/worker", "cmd/config", "vring", "vring/vhostuser", "vring/vringtest", "vnet", "translate", "vsockbridge", "guestagent"}},
}

// dataRooms hold what runs on the loop.
var dataRooms = []string{"vring", "vnet", "translate", "vsockbridge"}

// exempt files and rooms may do what their room may not, for the reason given.
var exempt = map[string]string{
	"vnet/netns":               "processes and netlink, while a namespace is set up",
	"vsockbridge/bridge":       "the kernel's side: ordinary sockets and processes; its data stay on the loop of vsockbridge/relay",
	"vring/eventloop/clock.go": "the one place that reads the clock",
}

func TestFence(t *testing.T) {
	for _, f := range sources(t) {
		t.Run(f.path, func(t *testing.T) {
			f.checkImports(t)
			f.checkUnsafe(t)
			f.checkLoopOnly(t)
		})
	}
}

type source struct {
	path, room string // from the top of the repository, with slashes
	ast        *ast.File
	fset       *token.FileSet
}

func sources(t *testing.T) []source {
	var list []source
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		rel := filepath.ToSlash(strings.TrimPrefix(path, ".."+string(filepath.Separator)))
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go"):
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		list = append(list, source{path: rel, room: filepath.ToSlash(filepath.Dir(rel)), ast: f, fset: fset})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 50 {
		t.Fatalf("only %d source files found: the walk is wrong", len(list))
	}
	return list
}

func (f *source) imports() []string {
	var list []string
	for _, i := range f.ast.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		list = append(list, p)
	}
	return list
}

func (f *source) checkImports(t *testing.T) {
	for _, p := range f.imports() {
		if to, ours := strings.CutPrefix(p, module); ours && !allowed(f.room, to) {
			t.Errorf("%s imports %s, which is not below it", f.room, to)
		}
	}
}

func allowed(from, to string) bool {
	if slices.Contains(leaves, to) {
		return true
	}
	if slices.Contains(leaves, from) {
		return false
	}
	for _, r := range rules {
		if !within(from, r.room) {
			continue
		}
		if within(to, r.room) {
			return true
		}
		return slices.ContainsFunc(r.imports, func(room string) bool {
			if room == "vring" { // the package itself, not the rooms in it
				return to == room
			}
			return within(to, room)
		})
	}
	return false
}

func within(room, top string) bool { return room == top || strings.HasPrefix(room, top+"/") }

func (f *source) checkUnsafe(t *testing.T) {
	if slices.Contains(f.imports(), "unsafe") && !strings.HasSuffix(f.path, "_unsafe.go") {
		t.Error("imports unsafe: only files that end in _unsafe.go may")
	}
}

// checkLoopOnly keeps clocks, goroutines, locks and the network library out of
// the rooms that move data: they belong to the loop.
func (f *source) checkLoopOnly(t *testing.T) {
	inData := slices.ContainsFunc(dataRooms, func(r string) bool { return within(f.room, r) })
	if exempt[f.path] != "" || exempt[f.room] != "" || !inData || strings.HasSuffix(f.room, "test") {
		return
	}
	for _, p := range f.imports() {
		codec := p == "net" && f.room == "translate/dhcp" // the types of the DHCP codec
		if (p == "net" || p == "log" || p == "log/slog" || p == "sync") && !codec {
			t.Errorf("imports %s", p)
		}
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			t.Errorf("%s starts a goroutine", f.fset.Position(n.Pos()))
		case *ast.SelectorExpr:
			pkg, ok := n.X.(*ast.Ident)
			if !ok {
				break
			}
			switch pkg.Name + "." + n.Sel.Name {
			case "time.Now", "time.Sleep", "time.AfterFunc", "time.NewTimer", "time.Since", "os.Exit", "log.Fatal":
				t.Errorf("%s uses %s.%s", f.fset.Position(n.Pos()), pkg.Name, n.Sel.Name)
			}
		}
		return true
	})
}

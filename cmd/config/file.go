package config

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxFile bounds a configuration file, in bytes; the parser builds a tree of it.
const maxFile = 4 << 20

// FileError is one thing that is wrong in a file.
type FileError struct {
	File         string
	Line, Column int // from 1; 0: the file as a whole
	Err          error
}

func (e *FileError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s:%d:%d: %v", e.File, e.Line, e.Column, e.Err)
}

func (e *FileError) Unwrap() error { return e.Err }

// section is a mapping of a file that was read into options, with the places of
// its keys for what turns out to be wrong later.
type section struct {
	at   *token.Position
	keys map[string]*token.Position
}

// reader walks the tree of one file and collects what is wrong in it.
type reader struct {
	file string
	errs []error
}

func (r *reader) wrong(at *token.Position, format string, args ...any) {
	e := &FileError{File: r.file, Err: fmt.Errorf(format, args...)}
	if at != nil {
		e.Line, e.Column = at.Line, at.Column
	}
	r.errs = append(r.errs, e)
}

// root reads the file and returns its one mapping, nil if there is none.
func (r *reader) root() *ast.MappingNode {
	text, err := os.ReadFile(r.file)
	switch {
	case err != nil:
		r.errs = append(r.errs, err)
		return nil
	case len(text) > maxFile:
		r.wrong(nil, "has %d bytes, at most %d are read", len(text), maxFile)
		return nil
	}
	tree, err := parser.ParseBytes(text, 0)
	if err != nil {
		var at *token.Position
		msg := err.Error()
		if e := yaml.Error(nil); errors.As(err, &e) {
			msg = e.GetMessage()
			if t := e.GetToken(); t != nil {
				at = t.Position
			}
		}
		r.wrong(at, "this is no YAML: %s", msg)
		return nil
	}
	var docs []ast.Node
	for _, d := range tree.Docs {
		if d.Body != nil {
			docs = append(docs, d.Body)
		}
	}
	switch len(docs) {
	case 0:
		r.wrong(nil, "is empty")
		return nil
	case 1:
		return r.mapping(docs[0], "the file")
	}
	r.wrong(place(docs[1]), "a second document begins here: write one file with one document")
	return nil
}

// mapping returns n as a mapping, nil (and an error noted) if it is none.
func (r *reader) mapping(n ast.Node, what string) *ast.MappingNode {
	if m, ok := n.(*ast.MappingNode); ok {
		return m
	}
	r.wrong(place(n), "%s has to be a mapping of keys and values, one \"key: value\" a line", what)
	return nil
}

// entries lists keys and values in their order. Merge keys and anchors are left
// out, with an error: what a guest has stands where the guest stands.
func (r *reader) entries(m *ast.MappingNode) iter.Seq2[*token.Token, ast.Node] {
	return func(yield func(*token.Token, ast.Node) bool) {
		for _, v := range m.Values {
			key := v.Key.GetToken()
			switch v.Value.(type) {
			case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
				r.wrong(key.Position, "%s: anchors, aliases and tags are not supported: write the value itself", key.Value)
				continue
			}
			if !yield(key, v.Value) {
				return
			}
		}
	}
}

// fill reads a mapping into the options that fields point to.
func (r *reader) fill(m *ast.MappingNode, fields []Field) section {
	s := section{at: place(m), keys: map[string]*token.Position{}}
	for key, value := range r.entries(m) {
		f, err := find(fields, strings.ReplaceAll(key.Value, "_", "-"))
		if err != nil {
			r.wrong(key.Position, "%v", err)
			continue
		}
		if s.keys[f.Key] != nil {
			r.wrong(key.Position, "%s: stands in line %d already", key.Value, s.keys[f.Key].Line)
			continue
		}
		s.keys[f.Key] = key.Position
		r.value(f, key.Value, value)
	}
	return s
}

// value reads one value, or each of a list.
func (r *reader) value(f Field, key string, n ast.Node) {
	if list, ok := n.(*ast.SequenceNode); ok {
		if !isList(f) {
			r.wrong(place(n), "%s: takes one value, not a list", key)
			return
		}
		for _, item := range list.Values {
			r.scalar(f, key, item)
		}
		return
	}
	r.scalar(f, key, n)
}

// scalar takes a value as it is written: 8080:80 and 0x10 are text until the
// option says what they are.
func (r *reader) scalar(f Field, key string, n ast.Node) {
	text, ok := plain(n)
	switch {
	case !ok && n.Type() == ast.NullType:
		r.wrong(place(n), "%s: has no value: write one, or leave the key out", key)
	case !ok:
		r.wrong(place(n), "%s: takes a plain value like a word, a number or a path", key)
	default:
		if err := f.Set(text); err != nil {
			r.wrong(place(n), "%s: %q: %v", key, text, err)
		}
	}
}

// plain returns the text of a scalar. The parser takes 80:90 in a list within
// braces for a mapping; without a blank behind its colon it is none (YAML 1.2.2,
// 7.3.3).
func plain(n ast.Node) (text string, ok bool) {
	switch n := n.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	case *ast.MappingNode:
		if n.IsFlowStyle || len(n.Values) != 1 {
			return "", false
		}
		colon, value := n.Values[0].GetToken().Position, n.Values[0].Value
		text, ok = plain(value)
		if at := value.GetToken().Position; at.Line != colon.Line || at.Column != colon.Column+1 {
			return "", false
		}
		return n.Values[0].Key.GetToken().Value + ":" + text, ok
	}
	return "", false
}

func place(n ast.Node) *token.Position {
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
		n = m.Values[0].Key // the node's own token is the colon behind it
	}
	return n.GetToken().Position
}

// err returns all that is wrong, in the order of the file.
func (r *reader) err() error {
	slices.SortStableFunc(r.errs, func(a, b error) int {
		var x, y *FileError
		if !errors.As(a, &x) || !errors.As(b, &y) {
			return 0
		}
		return x.Line - y.Line
	})
	return errors.Join(r.errs...)
}

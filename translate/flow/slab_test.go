package flow

import "testing"

type conn struct {
	a int
	p *int
}

func TestSlab(t *testing.T) {
	s := NewSlab[conn](3)
	i, c := s.Get()
	if i == 0 || c == nil {
		t.Fatal("index 0 was handed out")
	}
	c.a, c.p = 1, new(int)
	h := s.Handle(i)
	if s.Resolve(h) != c || s.At(i) != c || !s.Taken(i) || s.Len() != 1 {
		t.Error("a taken entry")
	}
	j, _ := s.Get()
	k, _ := s.Get()
	if _, c := s.Get(); c != nil || s.Len() != 3 {
		t.Error("beyond the limit")
	}
	s.Put(i)
	s.Put(i) // twice is harmless
	if s.Resolve(h) != nil || s.Taken(i) || s.Len() != 2 {
		t.Error("a returned entry")
	}
	n, c := s.Get()
	if n != i || *c != (conn{}) {
		t.Errorf("reused entry %d holds %+v", n, *c)
	}
	if s.Resolve(h) != nil {
		t.Error("old handle resolves to the new entry")
	}
	if s.Taken(0) || s.Taken(1<<31) || s.Resolve(Handle{}) != nil {
		t.Error("nonsense")
	}
	sum := uint32(0)
	s.All(func(i uint32, _ *conn) bool { sum += i; return true })
	if sum != i+j+k {
		t.Error("All")
	}
}

func TestSlabGrowsInPlace(t *testing.T) {
	var s Slab[conn]
	var at []*conn
	for n := range 1000 {
		i, c := s.Get()
		c.a = n
		at = append(at, c)
		if s.At(i) != c {
			t.Fatal("moved")
		}
	}
	for n, c := range at {
		if c.a != n {
			t.Fatal("overwritten")
		}
	}
	if n := testing.AllocsPerRun(10, func() {
		for i := uint32(1); i <= 1000; i++ {
			s.Put(i)
		}
		for range 1000 {
			s.Get()
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

package worker

// each lists every counter: of the loop, then of the guests with their sockets.
func (w *Worker) each(f func(name string, value uint64)) {
	s := w.loop.Stats()
	f("loop_turns", s.Turns)
	f("loop_waits", s.Waits)
	f("loop_events", s.Events)
	f("loop_stale_events", s.Stale)
	f("loop_panics", s.Panics)
	w.inside.each(f)
	for _, g := range w.guests {
		named := f
		if g.name != "" {
			named = func(name string, v uint64) { f(g.name+"."+name, v) }
		}
		if g.nic != nil {
			g.nic.each(named)
		}
		if g.vsock != nil {
			g.vsock.each(named)
		}
	}
}

func (n *nic) each(f func(name string, value uint64)) {
	n.attachment.each(f)
	n.translator.Each(f)
	n.host.Each(func(name string, v uint64) { f("host_"+name, v) })
}

package worker

// loopStats lists the counters of the loop and of the sockets on it.
func (w *Worker) loopStats(f func(name string, value uint64)) {
	s := w.loop.Stats()
	f("loop_turns", s.Turns)
	f("loop_waits", s.Waits)
	f("loop_events", s.Events)
	f("loop_stale_events", s.Stale)
	f("loop_panics", s.Panics)
	w.host.Each(func(name string, v uint64) { f("host_"+name, v) })
}

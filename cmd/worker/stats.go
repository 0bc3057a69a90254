package worker

// loopStats lists the loop's own counters.
func (w *Worker) loopStats(f func(name string, value uint64)) {
	s := w.loop.Stats()
	f("loop_turns", s.Turns)
	f("loop_waits", s.Waits)
	f("loop_events", s.Events)
	f("loop_stale_events", s.Stale)
	f("loop_panics", s.Panics)
}

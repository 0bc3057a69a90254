package udp

// waitlist is the queue of sockets that became readable while the guest had no
// room. Each is in it at most once; those that are gone are skipped when their
// turn comes.
type waitlist struct {
	q []source
}

// enqueue puts s at the end.
func (e *Engine) enqueue(s source) {
	w := e.waitingFlag(s)
	if *w {
		return
	}
	*w = true
	q := e.wait.q
	if len(q) == cap(q) {
		q = e.compact(q)
	}
	e.wait.q = append(q, s)
}

// compact drops sources that are gone, so that flows that come and go while the
// guest takes nothing do not make the queue grow.
func (e *Engine) compact(q []source) []source {
	kept := q[:0]
	for _, s := range q {
		if e.alive(s) {
			kept = append(kept, s)
		}
	}
	return kept
}

// resume forgets what was read and not passed on, and has everybody who waited
// for it called in the next turn.
func (e *Engine) resume() {
	e.rx.n, e.rx.i, e.rx.off = 0, 0, 0
	if e.alive(e.rx.src) {
		e.d.Host.Again(e.fdOf(e.rx.src))
	}
	for _, s := range e.wait.q {
		if e.alive(s) {
			*e.waitingFlag(s) = false
			e.d.Host.Again(e.fdOf(s))
		}
	}
	e.wait.q = e.wait.q[:0]
}

func (e *Engine) waitingFlag(s source) *bool {
	if s.cookie&served != 0 {
		return &e.listeners[s.cookie&^served].waiting
	}
	return &e.conns.At(s.cookie).waiting
}

// Writable continues towards the guest after it has posted buffers, and after
// LinkUp.
func (e *Engine) Writable() {
	r := &e.rx
	if !r.stalled() {
		return
	}
	if !e.deliver() {
		return
	}
	if e.alive(r.src) {
		e.enqueue(r.src) // it may have more, behind those who waited
	}
	w := &e.wait
	n := 0
	for n < len(w.q) && !r.stalled() {
		s := w.q[n]
		n++
		if e.alive(s) {
			*e.waitingFlag(s) = false
			e.read(s)
		}
	}
	w.q = w.q[:copy(w.q, w.q[n:])]
}

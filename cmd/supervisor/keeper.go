package supervisor

import (
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	readyTime = 30 * time.Second // from start to the ready line
	stopTime  = 5 * time.Second  // from SIGTERM to SIGKILL
)

// keeper keeps one job's worker alive, on a goroutine of its own.
type keeper struct {
	job     Job
	config  *Config
	log     *slog.Logger
	quit    chan struct{} // closed: stop the worker and end
	done    chan struct{} // closed: ended
	settled chan struct{} // closed: the first worker was ready, or has failed

	ready    atomic.Pointer[process] // nil: none is ready
	restarts atomic.Uint64
}

func newKeeper(j Job, c *Config) *keeper {
	return &keeper{
		job: j, config: c, log: c.Log.With("guest", j.Name),
		quit: make(chan struct{}), done: make(chan struct{}), settled: make(chan struct{}),
	}
}

// run starts worker after worker until quit.
func (k *keeper) run() {
	defer close(k.done)
	var pause backoff
	for {
		served, err := k.serve()
		k.settle()
		select {
		case <-k.quit:
			return
		default:
		}
		wait := pause.next(served)
		k.log.Error(fmt.Sprintf("the worker has ended (%v): next attempt in %v", err, wait))
		select {
		case <-k.quit:
			return
		case <-k.config.After(wait):
			k.restarts.Add(1)
		}
	}
}

// serve runs one worker to its end. It returns for how long that one was ready,
// and why it has ended.
func (k *keeper) serve() (served time.Duration, err error) {
	p, err := start(k.config.Command(k.job), k.job.Input)
	if err != nil {
		return 0, err
	}
	defer p.input.Close()

	late := k.config.After(readyTime)
	select {
	case where := <-p.ready:
		k.log.Info("ready on " + where)
	case <-p.ended:
		return 0, p.reason()
	case <-late:
		p.signal(syscall.SIGKILL)
		<-p.ended
		return 0, fmt.Errorf("not ready after %v", readyTime)
	case <-k.quit:
		k.end(p)
		return 0, nil
	}
	since := k.config.Now()
	k.ready.Store(p)
	defer k.ready.Store(nil)
	k.settle()
	select {
	case <-p.ended:
	case <-k.quit:
		k.end(p)
	}
	return k.config.Now().Sub(since), p.reason()
}

// end stops a worker: in order if it can, by force if it does not.
func (k *keeper) end(p *process) {
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-k.config.After(stopTime):
		k.log.Warn(fmt.Sprintf("the worker is still there %v after SIGTERM: killed", stopTime))
		p.signal(syscall.SIGKILL)
		<-p.ended
	}
}

// settle is called by the keeper's own goroutine alone.
func (k *keeper) settle() {
	select {
	case <-k.settled:
	default:
		close(k.settled)
	}
}

// signal passes s to the worker, if one is there that can take it.
func (k *keeper) signal(s os.Signal) {
	if p := k.ready.Load(); p != nil {
		p.signal(s)
	}
}

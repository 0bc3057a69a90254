package supervisor

import (
	"bytes"
	"log/slog"
	"os"
	"time"
)

// Job is what one worker process does.
type Job struct {
	Name  string // for log lines
	Input []byte // handed to every worker of this job; one line, without its end
}

// Config says how workers are run. It does not change.
type Config struct {
	Command func(Job) []string // path of the binary, then its argv from argv[0] on
	Log     *slog.Logger

	// Time, for tests to replace.
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// Supervisor runs jobs. It belongs to one goroutine.
type Supervisor struct {
	config  Config
	keepers []*keeper
}

// New makes a Supervisor without jobs.
func New(c Config) *Supervisor {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.After == nil {
		c.After = time.After
	}
	return &Supervisor{config: c}
}

// Set makes jobs the ones that run: what is not among them any more, or has
// changed, is stopped first, then what is new is started; the rest is left alone.
// The channel is closed when the first worker of every new job was ready or has
// failed; a job whose worker has failed stays, and is tried again.
func (s *Supervisor) Set(jobs []Job) (settled <-chan struct{}) {
	var stay, leave []*keeper
	running := map[string]bool{}
	for _, k := range s.keepers {
		if find(jobs, k.job) {
			stay = append(stay, k)
			running[k.job.Name] = true
		} else {
			leave = append(leave, k)
		}
	}
	stop(leave)
	s.keepers = stay
	var started []*keeper
	for _, j := range jobs {
		if !running[j.Name] {
			k := newKeeper(j, &s.config)
			go k.run()
			started = append(started, k)
		}
	}
	s.keepers = append(s.keepers, started...)
	all := make(chan struct{})
	go func() {
		defer close(all)
		for _, k := range started {
			<-k.settled
		}
	}()
	return all
}

func find(jobs []Job, j Job) bool {
	for i := range jobs {
		if jobs[i].Name == j.Name && bytes.Equal(jobs[i].Input, j.Input) {
			return true
		}
	}
	return false
}

// Stop ends all workers, at the same time, and waits for them.
func (s *Supervisor) Stop() {
	stop(s.keepers)
	s.keepers = nil
}

func stop(keepers []*keeper) {
	for _, k := range keepers {
		close(k.quit)
	}
	for _, k := range keepers {
		<-k.done
	}
}

// Signal passes sig to every worker that is ready.
func (s *Supervisor) Signal(sig os.Signal) {
	for _, k := range s.keepers {
		k.signal(sig)
	}
}

// Waiting names the jobs that have no ready worker now.
func (s *Supervisor) Waiting() (names []string) {
	for _, k := range s.keepers {
		if k.ready.Load() == nil {
			names = append(names, k.job.Name)
		}
	}
	return names
}

// Each lists the supervisor's own counters.
func (s *Supervisor) Each(f func(name string, value uint64)) {
	var restarts uint64
	for _, k := range s.keepers {
		restarts += k.restarts.Load()
	}
	f("daemon_workers", uint64(len(s.keepers)))
	f("daemon_workers_ready", uint64(len(s.keepers)-len(s.Waiting())))
	f("daemon_restarts", restarts)
}

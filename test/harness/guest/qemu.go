package guest

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"guestwire/test/harness/agent"
	"guestwire/test/harness/spawn"
)

// QEMUConfig describes a QEMU guest.
type QEMUConfig struct {
	Binary  string // qemu-system-x86_64 when ""
	Kernel  string
	Initrds []string // concatenated by the kernel's own rules: later files win
	Dir     string
	Accel   string   // "kvm" or "tcg"
	CPUs    int      // 2 when 0
	MemMiB  int      // 512 when 0
	Net     []string // arguments that make the network device, see VhostUser and Stream
	VSock   []string // arguments that make the vsock device, see VhostUserVSock
	Private bool     // guest memory that is not shared (for -netdev stream)
	Hotplug bool     // two free memory slots
	Extra   []string
	Wrap    []string // put before the command line, e.g. guestwire run ... --
	Env     []string
	NS      string
}

// VhostUser is the arguments for one vhost-user net device on a socket. vectors=0 is for QEMU 7.2 (Debian 12), which crashes under TCG without it.
func VhostUser(socket string, deviceOptions ...string) []string {
	return []string{
		"-chardev", "socket,id=net0,path=" + socket + ",reconnect=1",
		"-netdev", "vhost-user,id=net0,chardev=net0",
		"-device", strings.Join(append([]string{"virtio-net-pci,netdev=net0,vectors=0,mac=" + MAC}, deviceOptions...), ","),
	}
}

// Stream is the arguments for one network device over -netdev stream.
func Stream(socket string, deviceOptions ...string) []string {
	return []string{
		"-netdev", "stream,id=net0,server=off,addr.type=unix,addr.path=" + socket,
		"-device", strings.Join(append([]string{"virtio-net-pci,netdev=net0,mac=" + MAC}, deviceOptions...), ","),
	}
}

// VhostUserVSock is the arguments for one vhost-user vsock device on a socket; the backend knows the CID. vectors=0 as above.
func VhostUserVSock(socket string, deviceOptions ...string) []string {
	return []string{
		"-chardev", "socket,id=vsock0,path=" + socket,
		"-device", strings.Join(append([]string{"vhost-user-vsock-pci,chardev=vsock0,id=vsock0,vectors=0"}, deviceOptions...), ","),
	}
}

// LinkTo is the arguments for a network device that is wired to another QEMU's through a socket; the one that listens is started first.
func LinkTo(socket string, listen bool, mac string) []string {
	server := "off"
	if listen {
		server = "on"
	}
	return []string{
		"-netdev", "stream,id=net0,server=" + server + ",addr.type=unix,addr.path=" + socket,
		"-device", "virtio-net-pci,netdev=net0,mac=" + mac,
	}
}

// MAC is the guest's hardware address under QEMU.
const MAC = "52:54:00:12:34:56"

// Args is the whole command line, without the program.
func (c *QEMUConfig) Args() []string {
	mem := fmt.Sprintf("%dM", c.MemMiB)
	m := mem
	if c.Hotplug {
		m += fmt.Sprintf(",slots=2,maxmem=%dM", c.MemMiB+1024)
	}
	a := []string{"-machine", "q35", "-accel", c.accel(), "-cpu", "max", "-smp", fmt.Sprint(c.CPUs), "-m", m, "-nodefaults", "-no-user-config", "-display", "none",
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-chardev", "socket,id=agent,server=on,wait=off,path=" + filepath.Join(c.Dir, "agent.sock"), "-serial", "chardev:agent",
		"-chardev", "socket,id=qmp,server=on,wait=off,path=" + filepath.Join(c.Dir, "qmp.sock"), "-mon", "chardev=qmp,mode=control",
		"-kernel", c.Kernel, "-append", "console=ttyS0 quiet panic=-1 mitigations=off",
	}
	if !c.Private {
		a = append(a, "-object", "memory-backend-memfd,id=mem,share=on,size="+mem, "-machine", "memory-backend=mem")
	}
	return append(append(append(a, c.Net...), c.VSock...), c.Extra...)
}

func (c *QEMUConfig) accel() string {
	if c.Accel == "kvm" {
		return "kvm"
	}
	return "tcg,thread=multi"
}

// StartQEMU boots the guest.
func StartQEMU(c QEMUConfig) (*Guest, error) {
	if c.Binary == "" {
		c.Binary = "qemu-system-x86_64"
	}
	if c.CPUs == 0 {
		c.CPUs = 2
	}
	if c.MemMiB == 0 {
		c.MemMiB = 512
	}
	log, err := logFile(c.Dir, "console.log")
	if err != nil {
		return nil, err
	}
	initrd := filepath.Join(c.Dir, "initrd")
	if err := concatenate(initrd, c.Initrds); err != nil {
		return nil, err
	}
	argv := append(append(append([]string{}, c.Wrap...), c.Binary), c.Args()...)
	argv = append(argv, "-initrd", initrd)
	p, err := spawn.Start(spawn.Options{Log: log, Env: c.Env, NS: c.NS}, argv...)
	if err != nil {
		return nil, err
	}
	g := &Guest{Name: "qemu", Dir: c.Dir, proc: p, has: devices{len(c.Net) > 0 || len(c.VSock) == 0, len(c.VSock) > 0}}
	if err := g.connect(); err != nil {
		err = fmt.Errorf("%w\n%s", err, g.Console(40))
		g.Stop()
		return nil, err
	}
	if err := g.ready(); err != nil {
		g.Stop()
		return nil, err
	}
	return g, nil
}

// connect opens the agent's line and the monitor.
func (g *Guest) connect() error {
	line, err := dialUnix(filepath.Join(g.Dir, "agent.sock"), 10*time.Second)
	if err != nil {
		return err
	}
	g.line, g.c = line, agent.NewClient(line)
	g.QMP, err = DialQMP(filepath.Join(g.Dir, "qmp.sock"), 10*time.Second)
	return err
}

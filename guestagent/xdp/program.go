package xdp

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"guestwire/translate/wire"
)

// Verdicts of an XDP program and fields of its context (linux/bpf.h, xdp_md).
const (
	xdpPass = 2

	ctxData    = 0
	ctxDataEnd = 4
	ctxQueue   = 16 // rx_queue_index
)

// Program leads frames from a card to sockets until it is closed.
type Program struct {
	sockets *ebpf.Map
	prog    *ebpf.Program
	link    link.Link
}

// Attach makes a program for a card of so many queues and attaches it, in the
// driver; only with Copy, and where the driver has no XDP, in the kernel's generic
// receive path. UDP datagrams to port go to the socket of the queue that they came
// on; frames without a socket, and all others, go to the kernel.
func Attach(index, queues int, port uint16, mode Mode) (p *Program, err error) {
	p = new(Program)
	defer func() {
		if err != nil {
			p.Close()
			p = nil
		}
	}()
	p.sockets, err = ebpf.NewMap(&ebpf.MapSpec{Name: "gw_xsk", Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: uint32(max(queues, 1))})
	if err != nil {
		return p, fmt.Errorf("xdp: map: %w", err)
	}
	p.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{Name: "gw_xdp", Type: ebpf.XDP, License: "GPL", Instructions: lead(port, p.sockets.FD())})
	if err != nil {
		return p, fmt.Errorf("xdp: program: %w", err)
	}
	p.link, err = link.AttachXDP(link.XDPOptions{Program: p.prog, Interface: index, Flags: link.XDPDriverMode})
	if mode == Copy && errors.Is(err, unix.EOPNOTSUPP) {
		p.link, err = link.AttachXDP(link.XDPOptions{Program: p.prog, Interface: index, Flags: link.XDPGenericMode})
	}
	if err != nil {
		return p, fmt.Errorf("xdp: attach: %w", err)
	}
	return p, nil
}

// Lead gives the frames of a queue to a socket, which must be bound to it.
func (p *Program) Lead(queue int, s *Socket) error {
	if err := p.sockets.Put(uint32(queue), uint32(s.FD())); err != nil {
		return fmt.Errorf("xdp: socket of queue %d: %w", queue, err)
	}
	return nil
}

// Close detaches the program.
func (p *Program) Close() {
	if p.link != nil {
		p.link.Close()
	}
	if p.prog != nil {
		p.prog.Close()
	}
	if p.sockets != nil {
		p.sockets.Close()
	}
}

// lead is the program. Headers that are not in their plainest form (options,
// fragments, extension headers, tags) are the kernel's affair.
func lead(port uint16, sockets int) asm.Instructions {
	const ctx, data, end, at = asm.R6, asm.R2, asm.R3, asm.R4
	const ip4, ip6 = wire.EthLen, wire.EthLen
	const udp4, udp6 = ip4 + 20, ip6 + 40
	return asm.Instructions{
		asm.Mov.Reg(ctx, asm.R1),
		asm.LoadMem(data, ctx, ctxData, asm.Word),
		asm.LoadMem(end, ctx, ctxDataEnd, asm.Word),
		asm.Mov.Reg(at, data),
		asm.Add.Imm(at, udp4+8),
		asm.JGT.Reg(at, end, "pass"),
		asm.LoadMem(at, data, 12, asm.Half), // EtherType
		asm.JEq.Imm(at, network(wire.EtherIPv6), "six"),
		asm.JNE.Imm(at, network(wire.EtherIPv4), "pass"),
		asm.LoadMem(at, data, ip4, asm.Byte), // version, header of five words
		asm.JNE.Imm(at, 0x45, "pass"),
		asm.LoadMem(at, data, ip4+9, asm.Byte),
		asm.JNE.Imm(at, wire.ProtoUDP, "pass"),
		asm.LoadMem(at, data, ip4+6, asm.Half), // fragment offset, more fragments
		asm.And.Imm(at, network(0x3fff)),
		asm.JNE.Imm(at, 0, "pass"),
		asm.LoadMem(at, data, udp4+2, asm.Half),
		asm.JEq.Imm(at, network(port), "lead"),
		asm.Ja.Label("pass"),

		asm.Mov.Reg(at, data).WithSymbol("six"),
		asm.Add.Imm(at, udp6+8),
		asm.JGT.Reg(at, end, "pass"),
		asm.LoadMem(at, data, ip6+6, asm.Byte),
		asm.JNE.Imm(at, wire.ProtoUDP, "pass"),
		asm.LoadMem(at, data, udp6+2, asm.Half),
		asm.JNE.Imm(at, network(port), "pass"),

		asm.LoadMem(asm.R2, ctx, ctxQueue, asm.Word).WithSymbol("lead"),
		asm.LoadMapPtr(asm.R1, sockets),
		asm.Mov.Imm(asm.R3, xdpPass), // without a socket
		asm.FnRedirectMap.Call(),
		asm.Return(),

		asm.Mov.Imm(asm.R0, xdpPass).WithSymbol("pass"),
		asm.Return(),
	}
}

// network is what a load of two bytes in network order gives on this machine.
func network(v uint16) int32 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return int32(binary.NativeEndian.Uint16(b[:]))
}

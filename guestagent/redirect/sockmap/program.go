package sockmap

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// counterSize is the page's one counter: uint64 bytes that the program has sent on.
const counterSize = 8

// skDrop is the verdict that throws a buffer away.
const skDrop = 0

// verdict is the program that decides about each buffer that arrives at the
// socket in the slot's input map: it goes to the output, and is counted. An empty
// one is dropped, since as an empty send it would end the output.
//
// A program is for one slot, since nothing in its context tells which socket the
// buffer has reached (skb->sk is the sender's).
func verdict(counter, out *ebpf.Map) (*ebpf.Program, error) {
	const skb, n = asm.R6, asm.R7
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "gw_redirect", Type: ebpf.SkSKB, AttachType: ebpf.AttachSkSKBVerdict, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Reg(skb, asm.R1),
			asm.LoadMem(n, skb, 0, asm.Word), // __sk_buff.len
			asm.JEq.Imm(n, 0, "empty"),
			asm.LoadMapValue(asm.R1, counter.FD(), 0),
			asm.AddAtomic.Mem(asm.R1, n, asm.DWord, 0),
			asm.Mov.Reg(asm.R1, skb),
			asm.LoadMapPtr(asm.R2, out.FD()),
			asm.Mov.Imm(asm.R3, 0),
			asm.Mov.Imm(asm.R4, 0),
			asm.FnSkRedirectMap.Call(),
			asm.Return(),
			asm.Mov.Imm(asm.R0, skDrop).WithSymbol("empty"),
			asm.Return(),
		},
	})
}

// layout is where the kernel that runs has what look reads, in bytes.
type layout struct {
	receive    int16 // sock.sk_receive_queue, a sk_buff_head
	userData   int16 // sock.sk_user_data, the psock with flags in its low bits
	backlog    int32 // sk_psock.ingress_skb, a sk_buff_head
	qlen       int32 // sk_buff_head.qlen
	first      int32 // sk_buff_head.next
	next       int32 // sk_buff.next
	truesize   int32 // sk_buff.truesize
	peer       int32 // unix_sock.peer
	sent       int32 // sock.sk_wmem_alloc
	sendBuffer int32 // sock.sk_sndbuf
	most       int16 // sock.sk_max_ack_backlog, of a datagram socket's queue
}

// psockFlags are the low bits of sk_user_data that are no address.
const psockFlags = 7

func readLayout() (l layout, err error) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return l, fmt.Errorf("the kernel does not describe its types (BTF): %w", err)
	}
	var errs []error
	at := func(typ, member string) int32 {
		var s *btf.Struct
		err := spec.TypeByName(typ, &s)
		if err == nil {
			if n, ok := offset(s.Members, member); ok {
				return n
			}
			err = fmt.Errorf("struct %s has no member %s", typ, member)
		}
		errs = append(errs, err)
		return 0
	}
	l = layout{
		receive: int16(at("sock", "sk_receive_queue")), userData: int16(at("sock", "sk_user_data")), backlog: at("sk_psock", "ingress_skb"),
		qlen: at("sk_buff_head", "qlen"), first: at("sk_buff_head", "next"), next: at("sk_buff", "next"), truesize: at("sk_buff", "truesize"),
		peer: at("unix_sock", "peer"), sent: at("sock", "sk_wmem_alloc"), sendBuffer: at("sock", "sk_sndbuf"),
		most: int16(at("sock", "sk_max_ack_backlog")),
	}
	return l, errors.Join(errs...)
}

// offset finds a member, also within those that have no name.
func offset(members []btf.Member, name string) (bytes int32, ok bool) {
	for _, m := range members {
		if m.Name == name {
			return int32(m.Offset.Bytes()), true
		}
		var inner []btf.Member
		switch t := btf.UnderlyingType(m.Type).(type) {
		case *btf.Struct:
			inner = t.Members
		case *btf.Union:
			inner = t.Members
		}
		if m.Name == "" {
			if n, ok := offset(inner, name); ok {
				return int32(m.Offset.Bytes()) + n, true
			}
		}
	}
	return 0, false
}

// lookSize is what look writes for a socket, as uint32: buffers in its own receive
// queue; buffers that wait to be sent by it; for a UNIX socket with a peer, the
// bytes that this has under way (by one too many), how many it may have, and how
// many are in the receive queue; and how many buffers may be in that of a datagram
// socket, less one.
const lookSize = 24

// mostBuffers is up to where look adds up the receive queue.
const mostBuffers = 512

// look is an iterator over a sock map. There is no other way for user space to
// learn whether all that was redirected has been sent, and whether a sender can
// send.
func look(l layout) (*ebpf.Program, error) {
	const meta, sk, other, skb = asm.R6, asm.R7, asm.R8, asm.R9
	const result, receive, backlog, sent, buffer, queued, most = -24, -24, -20, -16, -12, -8, -4 // in the stack frame
	const pointer, size, i = -32, -40, -48
	read := func(to, size int32, from asm.Register, offset int32, failed string) asm.Instructions {
		return asm.Instructions{
			asm.Mov.Reg(asm.R1, asm.RFP),
			asm.Add.Imm(asm.R1, to),
			asm.Mov.Imm(asm.R2, size),
			asm.Mov.Reg(asm.R3, from),
			asm.Add.Imm(asm.R3, offset),
			asm.FnProbeReadKernel.Call(),
			asm.JNE.Imm(asm.R0, 0, failed),
		}
	}
	var ins asm.Instructions
	add := func(list ...asm.Instruction) { ins = append(ins, list...) }
	add(
		asm.LoadMem(meta, asm.R1, 0, asm.DWord),
		asm.LoadMem(sk, asm.R1, 24, asm.DWord), // bpf_iter__sockmap: meta, map, key, sk
		asm.JEq.Imm(sk, 0, "end"),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.RFP, sent, asm.R1, asm.DWord),
		asm.StoreMem(asm.RFP, queued, asm.R1, asm.DWord),
		asm.StoreMem(asm.RFP, size, asm.R1, asm.DWord),
		asm.StoreMem(asm.RFP, i, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, sk, l.receive+int16(l.qlen), asm.Word),
		asm.StoreMem(asm.RFP, receive, asm.R1, asm.Word),
		asm.LoadMem(asm.R1, sk, l.most, asm.Word),
		asm.StoreMem(asm.RFP, most, asm.R1, asm.Word),
		asm.LoadMem(other, sk, l.userData, asm.DWord),
		asm.And.Imm(other, ^psockFlags),
		asm.JEq.Imm(other, 0, "end"),
	)
	add(read(backlog, 4, other, l.backlog+l.qlen, "end")...)
	add(read(pointer, 8, sk, l.peer, "write")...)
	add(asm.LoadMem(other, asm.RFP, pointer, asm.DWord), asm.JEq.Imm(other, 0, "write"))
	add(read(sent, 4, other, l.sent, "write")...)
	add(read(buffer, 4, other, l.sendBuffer, "write")...)
	add(read(pointer, 8, sk, int32(l.receive)+l.first, "write")...)
	add( // queued = the sum of the buffers' sizes
		asm.LoadMem(asm.R1, asm.RFP, i, asm.DWord).WithSymbol("next"),
		asm.JGE.Imm(asm.R1, mostBuffers, "write"),
		asm.LoadMem(asm.R2, asm.RFP, receive, asm.Word),
		asm.JGE.Reg(asm.R1, asm.R2, "write"),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.RFP, i, asm.R1, asm.DWord),
		asm.LoadMem(skb, asm.RFP, pointer, asm.DWord),
	)
	add(read(size, 4, skb, l.truesize, "write")...)
	add(read(pointer, 8, skb, l.next, "write")...)
	add(
		asm.LoadMem(asm.R1, asm.RFP, size, asm.Word),
		asm.LoadMem(asm.R2, asm.RFP, queued, asm.Word),
		asm.Add.Reg(asm.R2, asm.R1),
		asm.StoreMem(asm.RFP, queued, asm.R2, asm.Word),
		asm.Ja.Label("next"),
		asm.LoadMem(asm.R1, meta, 0, asm.DWord).WithSymbol("write"), // bpf_iter_meta.seq
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, result),
		asm.Mov.Imm(asm.R3, lookSize),
		asm.FnSeqWrite.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
	)
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "gw_look", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceIter, AttachTo: "sockmap", License: "GPL", Instructions: ins,
	})
}

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
	receiveLen int16 // sock.sk_receive_queue.qlen
	userData   int16 // sock.sk_user_data, the psock with flags in its low bits
	backlogLen int32 // sk_psock.ingress_skb.qlen
	peer       int32 // unix_sock.peer, whose
	sent       int32 // sock.sk_wmem_alloc and
	sendBuffer int32 // sock.sk_sndbuf say whether it could send
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
			for _, m := range s.Members {
				if m.Name == member {
					return int32(m.Offset.Bytes())
				}
			}
			err = fmt.Errorf("struct %s has no member %s", typ, member)
		}
		errs = append(errs, err)
		return 0
	}
	qlen := at("sk_buff_head", "qlen")
	l = layout{
		receiveLen: int16(at("sock", "sk_receive_queue") + qlen), userData: int16(at("sock", "sk_user_data")),
		backlogLen: at("sk_psock", "ingress_skb") + qlen,
		peer:       at("unix_sock", "peer"), sent: at("sock", "sk_wmem_alloc"), sendBuffer: at("sock", "sk_sndbuf"),
	}
	return l, errors.Join(errs...)
}

// lookSize is what look writes for a socket, as uint32: buffers in its own receive
// queue; buffers that wait to be sent by it; and for a UNIX socket with a peer, of
// that the bytes that are under way, by one too many, and how many may be.
const lookSize = 16

// look is an iterator over a sock map. There is no other way for user space to
// learn whether all that was redirected has been sent.
func look(l layout) (*ebpf.Program, error) {
	const meta, sk, other = asm.R7, asm.R8, asm.R9
	const receive, backlog, sent, buffer, pointer = -24, -20, -16, -12, -8 // in the stack frame
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
	ins := asm.Instructions{
		asm.LoadMem(meta, asm.R1, 0, asm.DWord),
		asm.LoadMem(sk, asm.R1, 24, asm.DWord), // bpf_iter__sockmap: meta, map, key, sk
		asm.JEq.Imm(sk, 0, "end"),
		asm.LoadMem(asm.R1, sk, l.receiveLen, asm.Word),
		asm.StoreMem(asm.RFP, receive, asm.R1, asm.Word),
		asm.LoadMem(other, sk, l.userData, asm.DWord),
		asm.And.Imm(other, ^psockFlags),
		asm.JEq.Imm(other, 0, "end"),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.RFP, sent, asm.R1, asm.DWord),
	}
	ins = append(ins, read(backlog, 4, other, l.backlogLen, "end")...)
	ins = append(ins, read(pointer, 8, sk, l.peer, "write")...)
	ins = append(ins, asm.LoadMem(other, asm.RFP, pointer, asm.DWord), asm.JEq.Imm(other, 0, "write"))
	ins = append(ins, read(sent, 4, other, l.sent, "write")...)
	ins = append(ins, read(buffer, 4, other, l.sendBuffer, "write")...)
	ins = append(ins,
		asm.LoadMem(asm.R1, meta, 0, asm.DWord).WithSymbol("write"), // bpf_iter_meta.seq
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, receive),
		asm.Mov.Imm(asm.R3, lookSize),
		asm.FnSeqWrite.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
	)
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "gw_look", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceIter, AttachTo: "sockmap", License: "GPL", Instructions: ins,
	})
}

package dns

import "encoding/binary"

// The fixed part of a message (RFC 1035 4.1.1).
const (
	headerLen = 12

	opcodeQuery = 0

	rcodeServerFailure  = 2
	rcodeNotImplemented = 4

	typeOPT = 41 // RFC 6891
)

type header struct {
	id        uint16
	response  bool
	opcode    uint8
	rcode     uint8
	questions uint16
}

// parseHeader reads the first headerLen bytes of b.
func parseHeader(b []byte) header {
	return header{
		id:        binary.BigEndian.Uint16(b),
		response:  b[2]&0x80 != 0,
		opcode:    b[2] >> 3 & 15,
		rcode:     b[3] & 15,
		questions: binary.BigEndian.Uint16(b[4:]),
	}
}

// questionEnd returns where the one question of a query ends. ok is false if
// there is another number of questions or the name is malformed. Compression has
// nothing to point at in a first name, so a pointer is malformed too, and with it
// every loop.
func questionEnd(b []byte) (end int, ok bool) {
	if binary.BigEndian.Uint16(b[4:]) != 1 {
		return 0, false
	}
	for i := headerLen; i < len(b) && i-headerLen < maxName; {
		n := int(b[i])
		switch {
		case n == 0:
			end = i + 1 + 4 // type and class
			return end, end <= len(b)
		case n > maxLabel:
			return 0, false
		}
		i += 1 + n
	}
	return 0, false
}

// sameQuestion says whether an answer repeats the question asked, which is what
// lies between the header and its end. Letter case does not matter here (RFC
// 4343); a guest that mixes it on purpose gets to see what came back.
func sameQuestion(answer, question []byte) bool {
	end := headerLen + len(question)
	if len(answer) < end || binary.BigEndian.Uint16(answer[4:]) != 1 {
		return false
	}
	a, name := answer[headerLen:end], len(question)-4
	for i, c := range question {
		if d := a[i]; c != d && (i >= name || lower(c) != lower(d)) {
			return false
		}
	}
	return true
}

// lower folds ASCII letters. Lengths of labels end below 'A'.
func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// refusal turns the query in b, whose question ends at end, into an answer that
// has nothing but a return code, in place.
func refusal(b []byte, end int, rcode byte) []byte {
	edns := end > headerLen && hasOPT(b[end:], b)
	b[2] = b[2]&0x79 | 0x80         // response; opcode and RD as asked
	b[3] = b[3]&0x10 | 0x80 | rcode // RA; CD as asked
	clear(b[6:headerLen])
	if end == headerLen {
		clear(b[4:6])
	}
	b = b[:end]
	if edns {
		// RFC 6891 6.1.1: who asks with OPT is answered with one. Payload 1232.
		b[11] = 1
		b = append(b, 0, 0, typeOPT, 0x04, 0xd0, 0, 0, 0, 0, 0, 0)
	}
	return b
}

// hasOPT says whether the first record behind the question is an OPT record;
// queries have nothing before it.
func hasOPT(rest, b []byte) bool {
	return binary.BigEndian.Uint32(b[6:]) == 0 && binary.BigEndian.Uint16(b[10:]) > 0 &&
		len(rest) >= 11 && rest[0] == 0 && binary.BigEndian.Uint16(rest[1:]) == typeOPT
}

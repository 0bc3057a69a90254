package wire

// Verdict says why Parse refuses a frame; OK is zero. Each is a drop counter.
type Verdict uint8

const (
	OK          Verdict = iota
	Short               // ends before its headers do
	EtherType           // neither IP nor ARP, or an 802.3 length
	VLAN                // 802.1Q or 802.1ad tag
	IPHeader            // version, header length, v4-mapped address in IPv6
	IPChecksum          // IPv4 header checksum
	Length              // total or payload length disagrees with the frame
	Fragment            // a fragment with bad offset, length or offload
	Extension           // IPv6 extension headers: too many, routing, jumbo
	HeadersLong         // headers go beyond HeadSize
	L4Header            // TCP, UDP or ICMP header lies about its length
	Checksums           // L4 checksum is wrong
	Offload             // checksum or GSO request does not fit the packet
	NumVerdicts
)

var verdictNames = [NumVerdicts]string{
	"ok", "short", "ethertype", "vlan", "iphdr", "ipsum", "length", "frag", "ext", "hdr-long", "l4hdr", "csum-bad", "csum",
}

// String is the name of the drop counter.
func (v Verdict) String() string {
	if v < NumVerdicts {
		return verdictNames[v]
	}
	return "unknown"
}

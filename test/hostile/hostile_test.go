package hostile

import "testing"

// row is one kind of hostile or faulty input.
type row struct {
	id  string
	run func(t *testing.T)
}

func TestHostile(t *testing.T) {
	for _, rows := range [][]row{ringRows, vhostUserRows, lifecycleRows, frameRows, tcpLimitRows, tcpBeginRows, tcpRows, ipRows, udpRows, icmpRows, serviceRows, systemRows, moreRows, vsockRows} {
		for _, r := range rows {
			t.Run(r.id, r.run)
		}
	}
}

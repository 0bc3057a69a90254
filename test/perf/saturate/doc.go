// Package saturate measures how much one loop of the daemon carries when the
// guest costs next to nothing: a synthetic guest speaks vhost-user to a real
// `guestwire net` process and moves TCP data in 64 KiB frames that it neither
// makes nor looks at.
//
//	go test ./test/perf/saturate -bench . -benchtime 5s
//
// Each benchmark reports MB/s, and beside it what plain loopback TCP reaches in
// the same process in the same run (loopback-MB/s), since this says more than
// the absolute number: host -> guest and guest -> host at least 0.8 of it is the
// goal. So is what iperf3 reaches over loopback, where it is installed. Two more measure memory per idle flow and the time to start.
package saturate

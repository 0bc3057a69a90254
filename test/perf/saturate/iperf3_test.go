package saturate

import (
	"encoding/json"
	"net"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// iperf3 is what iperf3 reaches over plain loopback, in MB/s; 0 where there is no
// iperf3.
func iperf3(b *testing.B) float64 {
	path, err := exec.LookPath("iperf3")
	if err != nil {
		return 0
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	server := exec.Command(path, "-s", "-1", "-B", "127.0.0.1", "-p", port)
	must(b, server.Start())
	defer func() {
		server.Process.Kill()
		server.Wait()
	}()
	var report struct {
		End struct {
			Received struct {
				Bits float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	for range 100 { // until the server listens
		out, err := exec.Command(path, "-c", "127.0.0.1", "-p", port, "-t", "2", "-J").Output()
		if err == nil {
			must(b, json.Unmarshal(out, &report))
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return report.End.Received.Bits / 8e6
}

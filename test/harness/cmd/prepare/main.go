// Prepare brings what the tests with guests need onto this machine (package lab) and says where it is.
package main

import (
	"fmt"
	"os"

	"guestwire/test/harness/lab"
)

func main() {
	l, err := lab.Prepare(lab.All, os.Stdout)
	if err != nil {
		fmt.Fprintf(os.Stderr, "prepare: %v\n", err)
		os.Exit(1)
	}
	fmt.Printf("prepare: ready in %s: Linux %s and %s under %s, User Mode Linux, testpmd\n", l.Cache, l.KernelVersion(), l.Stable().KernelVersion(), l.Accel())
}

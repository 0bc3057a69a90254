package qemu

import (
	"context"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

var versionRE = regexp.MustCompile(`version (\d+)\.(\d+)(?:\.(\d+))?`)

// Version asks a QEMU binary for its version: "7.2.22" and the major number.
func Version(binary string) (full string, major int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, "--version").Output()
	if err != nil {
		return "", 0, err
	}
	return parseVersion(string(out))
}

func parseVersion(s string) (full string, major int, err error) {
	m := versionRE.FindStringSubmatch(s)
	if m == nil {
		return "", 0, nil // some other program: assume a recent one
	}
	major, err = strconv.Atoi(m[1])
	return m[0][len("version "):], major, err
}

package config

// attachment checks how a guest reaches a device: every device has these three
// options.
func attachment(path string, fd int, client bool) error {
	switch {
	case path == "" && fd < 0:
		return wrong("--socket-path", "", "say where the guest connects: --socket-path PATH, or --fd N for a socket that is open already")
	case path != "" && fd >= 0:
		return wrong("--fd", "", "give either --socket-path or --fd, not both")
	case fd >= 0 && client:
		return wrong("--client", "", "is for --socket-path: the socket of --fd is connected already")
	}
	return socketPath("--socket-path", path)
}

// maxSocketPath is what fits into a sockaddr_un beside the final zero.
const maxSocketPath = 107

func socketPath(option, path string) error {
	if len(path) > maxSocketPath {
		return wrong(option, path, "has %d bytes, a UNIX socket path holds %d: choose a shorter one", len(path), maxSocketPath)
	}
	return nil
}

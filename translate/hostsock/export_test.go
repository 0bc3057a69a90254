package hostsock

// ForbidGSO makes fd behave as after EIO from UDP_SEGMENT.
func (k *Kernel) ForbidGSO(fd FD) { k.socks[fd].noGSO = true }

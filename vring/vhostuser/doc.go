// Package vhostuser speaks the vhost-user protocol, both ends.
package vhostuser

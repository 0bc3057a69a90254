// Package vring is the split virtqueue, both sides over one layout.
package vring

// Package guestmem turns guest addresses into bytes.
package guestmem

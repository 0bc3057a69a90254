// Package neigh answers ARP and neighbour discovery, and is the guest's IPv6
// router as far as router advertisements go.
package neigh

package server

import "net"

// Limit puts the limits on a listener that is not of TCP.
func (o Listen) Limit(l net.Listener) *Listener { return o.limit(l) }

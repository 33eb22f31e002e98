package rpc

import "google.golang.org/grpc"

// Services returns what the door serves.
func (d *Door) Services() map[string]grpc.ServiceInfo { return d.server.GetServiceInfo() }

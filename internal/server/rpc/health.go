package rpc

import (
	"context"

	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/store"
)

// probeKey is the counter that a health check deletes if it does not exist.
const probeKey = "quipu.ready"

// health serves the standard health service. It is of the whole server: it makes
// no difference between services.
type health struct {
	grpc_health_v1.UnimplementedHealthServer
	door *Door
}

// Check deletes a counter that does not exist: that goes all the way that a
// write goes, is no refusal, and changes nothing.
func (h *health) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	select {
	case <-h.door.draining:
		return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_NOT_SERVING}, nil
	default:
	}
	_, err := h.door.db.Delete(ctx, probeKey, quipu.IfVersion(0))
	if err != nil && server.KindOf(err) != store.KindChanged { // someone counts under that key
		h.door.tell(ctx, grpc_health_v1.Health_Check_FullMethodName, err)
		return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_NOT_SERVING}, nil
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

package rpc

import (
	"context"

	"google.golang.org/grpc/health/grpc_health_v1"
)

// health serves the standard health service. It is of the whole server: it makes
// no difference between services.
type health struct {
	grpc_health_v1.UnimplementedHealthServer
	door *Door
}

// Check finds out whether the DB can be used.
func (h *health) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	select {
	case <-h.door.draining:
		return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_NOT_SERVING}, nil
	default:
	}
	if err := h.door.db.Ready(ctx); err != nil {
		h.door.tell(ctx, grpc_health_v1.Health_Check_FullMethodName, err)
		return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_NOT_SERVING}, nil
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

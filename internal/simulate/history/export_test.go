package history

import "github.com/refloat/refloat/events/pb"

// CauseOf names the cause of a failure, as simulations do.
func CauseOf(e *pb.Error) string { return failureOf(e).Cause }

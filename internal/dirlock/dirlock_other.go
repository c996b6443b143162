//go:build !unix

package dirlock

import "io"

// Lock does nothing: directories cannot be locked here.
func Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// Holder knows nobody here.
func Holder(_, _ string) string { return "" }

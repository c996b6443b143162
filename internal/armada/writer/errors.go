package writer

import (
	"fmt"

	"github.com/refloat/refloat/internal/jobdb/postgres"
)

// unableError reports why a retry cannot be written to Armada's tables.
type unableError struct {
	job string
	err error
}

func (e *unableError) Error() string {
	return fmt.Sprintf("job %s: the decision is to retry, but its requirements cannot be rebuilt, so Armada fails the job: %v", e.job, e.err)
}
func (e *unableError) Unwrap() error { return e.err }

// failed wraps an error with its class, as the job database does.
func (w *writing) failed(doing string, err error) error {
	if err == nil {
		return nil
	}
	if class := postgres.Class(err, w.conn.Conn()); class != nil {
		return fmt.Errorf("%s: %w: %w", doing, class, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

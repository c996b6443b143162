package writer

import (
	"fmt"

	"github.com/refloat/refloat/internal/jobdb/postgres"
)

// unableError says why a retry cannot be put into Armada's tables.
type unableError struct {
	job string
	err error
}

func (e *unableError) Error() string {
	return fmt.Sprintf("job %s is retried, and its requirements cannot be rebuilt, so Armada fails it: %v", e.job, e.err)
}
func (e *unableError) Unwrap() error { return e.err }

// failed gives an error of the database the class that the job database's have.
func (w *writing) failed(doing string, err error) error {
	if err == nil {
		return nil
	}
	if class := postgres.Class(err, w.conn.Conn()); class != nil {
		return fmt.Errorf("%s: %w: %w", doing, class, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

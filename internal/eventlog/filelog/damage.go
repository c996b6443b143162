package filelog

import (
	"cmp"
	"fmt"

	"github.com/refloat/refloat/internal/eventlog"
)

// damage describes durable data that is damaged.
type damage struct {
	path    string
	offset  int64
	ordinal int64 // of the expected frame
	what    string
	advice  string
}

func (d damage) err() error {
	d.advice = cmp.Or(d.advice, "restore the file from a copy; without one, the messages from this offset on are lost")
	return fmt.Errorf("%s, offset %d, frame %d: %s (%s): %w", d.path, d.offset, d.ordinal, d.what, d.advice, eventlog.ErrCorrupt)
}

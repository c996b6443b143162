package filelog

import (
	"fmt"
	"io/fs"
	"sync/atomic"

	"github.com/refloat/refloat/internal/eventlog"
)

// publisher appends payloads to one partition.
type publisher struct {
	log       *Log
	partition int
	closed    atomic.Bool
}

// Publisher returns a publisher for a partition. The lock on the directory keeps other
// processes out; this log may have several open publishers.
func (l *Log) Publisher(p int) eventlog.Publisher {
	return &publisher{log: l, partition: p}
}

func (p *publisher) Publish(payload []byte) error {
	if p.closed.Load() {
		return fmt.Errorf("filelog: publisher: %w", fs.ErrClosed)
	}
	return p.log.Append(p.partition, []eventlog.Message{{Payload: payload}})
}

// Err returns the error with which the log failed, if any.
func (p *publisher) Err() error { return p.log.queue.failed() }

// Close closes the publisher. Published messages stay queued.
func (p *publisher) Close() error {
	p.closed.Store(true)
	return nil
}

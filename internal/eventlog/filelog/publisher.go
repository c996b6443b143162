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

// Publisher returns a publisher for a partition. The lock on the directory
// keeps other processes out; several publishers of this log may be open.
func (l *Log) Publisher(p int) eventlog.Publisher {
	return &publisher{log: l, partition: p}
}

func (p *publisher) Publish(payload []byte) error {
	if p.closed.Load() {
		return fmt.Errorf("filelog: publisher: %w", fs.ErrClosed)
	}
	return p.log.Append(p.partition, []eventlog.Message{{Payload: payload}})
}

// Err is the error by which the log failed, if it did.
func (p *publisher) Err() error { return p.log.queue.failed() }

// Close ends the publisher. What it published stays queued.
func (p *publisher) Close() error {
	p.closed.Store(true)
	return nil
}

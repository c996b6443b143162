package filelog

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Codec is the compression of frame bodies.
type Codec uint8

// The codecs. Their numbers are stored in frames.
const (
	CodecNone Codec = 0
	CodecS2   Codec = 1
)

// String returns the codec's name.
func (c Codec) String() string {
	switch c {
	case CodecNone:
		return "none"
	case CodecS2:
		return "s2"
	}
	return fmt.Sprintf("codec(%d)", uint8(c))
}

const (
	defaultSegmentBytes = 64 << 20
	defaultQueueBytes   = 32 << 20
	defaultFrameBytes   = 128 << 10

	// maxFrameBytes limits a frame's body, stored and decompressed, and so the
	// allocation that a damaged length can cause.
	maxFrameBytes = 64 << 20
	maxPartitions = 1 << 16
)

// Config configures a log.
type Config struct {
	FS  vfs.FS // required
	Dir string // required

	// Partitions is required to create a log. For an existing log, 0 accepts its count,
	// and any other count than its own is an error.
	Partitions int
	// ReadOnly opens the log without its lock, to read what another process writes.
	ReadOnly bool

	SegmentBytes int64 // size at which a new segment begins; default 64 MiB
	QueueBytes   int64 // maximum of uncommitted bytes; default 32 MiB
	FrameBytes   int64 // size at which a new frame begins; default 128 KiB
	Codec        Codec // codec of new frames

	// Now returns publish times; default time.Now. Appends and commits call it, so it
	// must be safe for concurrent use unless the log is Manual.
	Now func() time.Time
	// Manual runs no goroutines. Nothing becomes durable until Commit, Flush,
	// AppendSync or Close is called. Only Read polls for what another process writes,
	// so Changed of a read-only log never receives.
	Manual bool
}

func (c Config) withDefaults() (Config, error) {
	if c.FS == nil || c.Dir == "" {
		return c, errors.New("filelog: FS and Dir are required")
	}
	if c.Partitions < 0 || c.Partitions > maxPartitions {
		return c, fmt.Errorf("filelog: invalid partition count %d: it must be between 1 and %d", c.Partitions, maxPartitions)
	}
	if c.Codec > CodecS2 {
		return c, fmt.Errorf("filelog: unknown %v", c.Codec)
	}
	if c.SegmentBytes <= 0 {
		c.SegmentBytes = defaultSegmentBytes
	}
	if c.QueueBytes <= 0 {
		c.QueueBytes = defaultQueueBytes
	}
	if c.FrameBytes <= 0 {
		c.FrameBytes = defaultFrameBytes
	}
	c.FrameBytes = min(c.FrameBytes, maxFrameBytes)
	if c.Now == nil {
		c.Now = time.Now
	}
	return c, nil
}

package filelog

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Codec says how the bodies of frames are stored.
type Codec uint8

// The codecs. Their numbers stand in the frames.
const (
	CodecNone Codec = 0
	CodecS2   Codec = 1
)

// String is the codec's name.
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

	// maxFrameBytes bounds a frame's body, stored and decompressed, and so
	// what a damaged length can make a reader allocate.
	maxFrameBytes = 64 << 20
	maxPartitions = 1 << 16
)

// Config says where a log is and how it is written.
type Config struct {
	FS  vfs.FS // required
	Dir string // required

	// Partitions is required to create a log. For one that exists, 0 takes
	// what it has, and another number than it has is an error.
	Partitions int
	// ReadOnly opens the log without its lock, for reading what another
	// process writes.
	ReadOnly bool

	SegmentBytes int64 // begin a new segment beyond this; default 64 MiB
	QueueBytes   int64 // what may wait for a commit; default 32 MiB
	FrameBytes   int64 // begin a new frame beyond this; default 128 KiB
	Codec        Codec // of new frames

	// Now gives publish times; default time.Now. Appends and commits call it, so
	// it must be safe for several goroutines unless the log is Manual.
	Now func() time.Time
	// Manual leaves out all goroutines. Nothing becomes durable until Commit,
	// Flush, AppendSync or Close is called; and no one looks for what another
	// process writes but Read, so that Changed says nothing in a read-only log.
	Manual bool
}

func (c Config) withDefaults() (Config, error) {
	if c.FS == nil || c.Dir == "" {
		return c, errors.New("filelog: FS and Dir are required")
	}
	if c.Partitions < 0 || c.Partitions > maxPartitions {
		return c, fmt.Errorf("filelog: %d partitions; 1 to %d are possible", c.Partitions, maxPartitions)
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

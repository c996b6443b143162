package filelog_test

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/test/logtest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		config filelog.Config
		disk   bool
		apart  bool // reads through a second, read-only opening
	}{
		{name: "memory"},
		{name: "memory, s2", config: filelog.Config{Codec: filelog.CodecS2}},
		{name: "memory, small segments", config: filelog.Config{SegmentBytes: 300}},
		{name: "memory, manual", config: filelog.Config{Manual: true, SegmentBytes: 1000}},
		{name: "memory, apart", apart: true, config: filelog.Config{SegmentBytes: 1000}},
		{name: "disk", disk: true},
		{name: "disk, s2, small segments, apart", disk: true, apart: true, config: filelog.Config{Codec: filelog.CodecS2, SegmentBytes: 2000}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			logtest.Run(t, func(t *testing.T, partitions int) *logtest.Harness {
				config := c.config
				config.FS, config.Dir, config.Partitions = vfs.NewMem(), "dir/log", partitions
				if c.disk {
					config.FS, config.Dir = vfs.Default, t.TempDir()+"/dir/log"
				}
				return start(t, config, c.apart)
			})
		})
	}
}

func start(t *testing.T, config filelog.Config, apart bool) *logtest.Harness {
	var log, reads *filelog.Log
	open := func() (err error) {
		if log, err = filelog.Open(config); err != nil || !apart {
			reads = log
			return err
		}
		c := config
		c.ReadOnly = true
		reads, err = filelog.Open(c)
		return err
	}
	shut := func() error { return errors.Join(reads.Close(), log.Close()) }
	if err := open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shut(); err != nil {
			t.Error(err)
		}
	})
	return &logtest.Harness{
		Topic: func() eventlog.Topic { return reads },
		Append: func(p int, batch []eventlog.Message) error {
			return log.AppendSync(t.Context(), p, batch)
		},
		Publisher: func(p int) (eventlog.Publisher, error) {
			pub := log.Publisher(p)
			if config.Manual {
				pub = committing{pub, log}
			}
			return pub, nil
		},
		Reopen: func() error {
			if err := shut(); err != nil {
				return err
			}
			return open()
		},
	}
}

// committing commits what it publishes.
type committing struct {
	eventlog.Publisher
	log *filelog.Log
}

func (c committing) Publish(payload []byte) error {
	return errors.Join(c.Publisher.Publish(payload), c.log.Commit())
}

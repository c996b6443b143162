package filelog_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
)

// For any content of a segment and of SYNCED, opening and reading end with messages or
// with a classified error.
func FuzzLog(f *testing.F) {
	mem, m := vfs.NewMem(), newModel(1)
	c := filelog.Config{FS: mem, Dir: "log", Partitions: 1, Manual: true, Now: clock()}
	log := mustOpen(f, c)
	for i := range 3 {
		if err := errors.Join(m.append(log, 0, i+1, 30), m.commit(log)); err != nil {
			f.Fatal(err)
		}
	}
	mustClose(f, log)
	files := treeOf(f, mem, "log")
	const segment, mark = "log/0000/00000000000000000000.seg", "log/0000/SYNCED"
	f.Add(files[segment], files[mark])
	f.Add(files[segment][:100], files[mark][:60])
	f.Add(append(bytes.Clone(files[segment]), make([]byte, 300)...), []byte{})
	f.Add([]byte{}, files[mark])
	f.Fuzz(func(t *testing.T, seg, synced []byte) {
		changed := tree{"log/META": files["log/META"], segment: seg, mark: synced}
		for _, readOnly := range []bool{true, false} {
			c := c
			c.FS, c.ReadOnly = changed.disk(t), readOnly
			log, err := filelog.Open(c)
			if err == nil {
				_, err = readAll(log, 0, eventlog.Start)
				mustClose(t, log)
			}
			if err != nil && !errors.Is(err, eventlog.ErrCorrupt) && !errors.Is(err, eventlog.ErrTrimmed) {
				t.Fatal(err)
			}
		}
	})
}

package filelog_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/eventlog/filelog"
)

// crashing is a file system that can crash before any of its operations.
type crashing struct {
	vfs.FS
	mem   *vfs.MemFS
	ops   int
	at    int // the operation before which it crashes; -1: none
	cut   func(*vfs.MemFS) *vfs.MemFS
	clone *vfs.MemFS
}

func newCrashing(mem *vfs.MemFS) *crashing {
	c := &crashing{mem: mem, at: -1}
	c.FS = errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			if c.ops == c.at {
				c.clone = c.cut(c.mem)
			}
			c.ops++
		}
		return nil
	}))
	return c
}

// crash arms a crash n writing operations from now.
func (c *crashing) crash(n, percent int, seed uint64) {
	c.at = c.ops + n
	c.cut = func(m *vfs.MemFS) *vfs.MemFS { return cut(m, percent, seed) }
}

func cut(m *vfs.MemFS, percent int, seed uint64) *vfs.MemFS {
	return m.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(seed, 1))})
}

// percents contains 50 twice: it comes out differently.
var percents = []int{0, 50, 50, 100}

// Random appends, commits, and crashes, also during commits and recoveries: messages
// that were reported or read stay, and the log continues.
func TestCrashes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		config := filelog.Config{
			Dir: "a/log", Partitions: 2, Manual: true, Now: clock(),
			SegmentBytes: rapid.SampledFrom([]int64{1, 5000, 50000}).Draw(t, "segment bytes"),
			FrameBytes:   rapid.SampledFrom([]int64{1, 0}).Draw(t, "frame bytes"),
			Codec:        rapid.SampledFrom([]filelog.Codec{filelog.CodecNone, filelog.CodecS2}).Draw(t, "codec"),
		}
		disk, m := newCrashing(vfs.NewCrashableMem()), newModel(2)
		config.FS = disk
		var log *filelog.Log
		check := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		open := func() {
			var err error
			log, err = filelog.Open(config)
			check(err)
			check(m.check(log))
		}
		open()
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1:
				size := rapid.SampledFrom([]int{0, 50, 3000, 9000, 200_000}).Draw(t, "size")
				check(m.append(log, rapid.IntRange(0, 1).Draw(t, "partition"), rapid.IntRange(1, 4).Draw(t, "messages"), size))
			case 2:
				check(m.commit(log))
			case 3: // a crash during a commit or a Close, and perhaps during recovery
				before := m.clone()
				disk.crash(rapid.IntRange(0, 12).Draw(t, "operations"), rapid.SampledFrom(percents).Draw(t, "percent"), rapid.Uint64().Draw(t, "seed"))
				check(m.commit(log))
				check(log.Close())
				for range rapid.IntRange(0, 2).Draw(t, "crashes in recovery") {
					if disk.clone == nil {
						break
					}
					disk, m, before = newCrashing(disk.clone), before, before.clone()
					config.FS = disk
					disk.crash(rapid.IntRange(0, 8).Draw(t, "operations"), rapid.SampledFrom(percents).Draw(t, "percent"), rapid.Uint64().Draw(t, "seed"))
					open()
					disk.at = -1
					check(log.Close())
				}
				disk.at = -1
				if disk.clone != nil {
					disk, m = newCrashing(disk.clone), before
					config.FS = disk
				}
				open()
			case 4:
				check(log.Close())
				m.allDurable()
				open()
			case 5:
				check(m.commit(log))
				check(m.check(log))
			}
		}
	})
}

// workload appends to two partitions over several segments, commits, and reopens in
// between. It ends at an error.
func workload(config filelog.Config, m *model) error {
	for range 2 {
		log, err := filelog.Open(config)
		if err != nil {
			return err
		}
		if err := steps(log, m); err != nil {
			return errors.Join(err, log.Close())
		}
		if err := log.Close(); err != nil {
			return err
		}
	}
	return nil
}

func steps(log *filelog.Log, m *model) error {
	for _, size := range []int{100, 2100, 2100, 7000, 300} {
		for i := range 4 {
			if err := m.append(log, i%2, i%3+1, size); err != nil {
				return err
			}
		}
		if err := m.commit(log); err != nil {
			return err
		}
	}
	return nil
}

// workConfig has small frames and segments: a commit writes several frames, over
// several pages and segments.
func workConfig() filelog.Config {
	return filelog.Config{Dir: "a/log", Partitions: 2, Manual: true, SegmentBytes: 20000, FrameBytes: 1, Now: clock()}
}

// Crash at every write operation, with none, half, and all of the unsynced data; crash
// the recovery at each of its operations, and continue.
// cut the recovery at every one of its operations, and go on.
func TestEveryCrashPoint(t *testing.T) {
	t.Parallel()
	points, nested := 0, 0
	for point := 0; ; point++ {
		reached := false
		for i, percent := range percents {
			disk, m := newCrashing(vfs.NewCrashableMem()), newModel(2)
			var before *model
			disk.crash(point, percent, uint64(10*point+i))
			inner := disk.cut
			disk.cut = func(mem *vfs.MemFS) *vfs.MemFS {
				before = m.clone()
				return inner(mem)
			}
			c := workConfig()
			c.FS = disk
			if err := workload(c, m); err != nil {
				t.Fatal(err)
			}
			if disk.clone == nil {
				continue
			}
			reached = true
			points++
			nested += recoverEverywhere(t, c, disk.clone, before, fmt.Sprintf("point %d, %d %%", point, percent))
		}
		if !reached {
			break
		}
		if testing.Short() {
			point += 4
		}
	}
	t.Logf("%d crashes, %d crashes in recovery after them", points, nested)
	if points < 30 {
		t.Fatalf("only %d crash points", points)
	}
}

// recoverEverywhere opens the log after a crash, first with a crash at each operation
// of the recovery, and then without. It returns the number of crashes.
func recoverEverywhere(t *testing.T, c filelog.Config, mem *vfs.MemFS, m *model, where string) int {
	for point := 0; ; point++ {
		disk, was := newCrashing(cut(mem, 0, 0)), m.clone()
		disk.crash(point, percents[point%4], uint64(point))
		c.FS = disk
		log := mustOpen(t, c)
		disk.at = -1
		if err := was.check(log); err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		if disk.clone != nil {
			c.FS = disk.clone
			if err := m.clone().check(mustOpen(t, c)); err != nil {
				t.Fatalf("%s, then %d in recovery: %v", where, point, err)
			}
			continue
		}
		// Recovered without a crash: the log continues, and keeps what it reports.
		if err := errors.Join(steps(log, was), was.check(log)); err != nil {
			t.Fatalf("%s, going on: %v", where, err)
		}
		c.FS = cut(disk.mem, 0, 0)
		if err := was.check(mustOpen(t, c)); err != nil {
			t.Fatalf("%s, gone on: %v", where, err)
		}
		return point
	}
}

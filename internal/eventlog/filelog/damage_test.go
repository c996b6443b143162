package filelog_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
)

var every = flag.Bool("every", false, "damage every byte, not some")

// tree is a directory of files as data.
type tree map[string][]byte

func treeOf(t testing.TB, mem *vfs.MemFS, dir string) tree {
	t.Helper()
	files := make(tree)
	names, err := mem.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		full := path.Join(dir, name)
		info, err := mem.Stat(full)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			maps.Copy(files, treeOf(t, mem, full))
			continue
		}
		data, err := mem.UnsafeGetFileDataBuffer(full)
		if err != nil {
			t.Fatal(err)
		}
		files[full] = bytes.Clone(data)
	}
	return files
}

func (files tree) disk(t testing.TB) *vfs.MemFS {
	t.Helper()
	mem := vfs.NewMem()
	for name, data := range files {
		if err := mem.MkdirAll(path.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := mem.Create(name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(bytes.Clone(data)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return mem
}

// damages calls do with each damaged version of the tree.
func (files tree) damages(do func(what, name string, damaged tree)) {
	stride := 5 // go test -every takes each byte
	if testing.Short() {
		stride = 37
	}
	if *every {
		stride = 1
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		data := files[name]
		with := func(what string, changed []byte) {
			if bytes.Equal(changed, data) {
				return
			}
			damaged := maps.Clone(files)
			damaged[name] = changed
			do(fmt.Sprintf("%s, %s", name, what), name, damaged)
		}
		for i := 0; i < len(data); i += stride {
			flipped := bytes.Clone(data)
			flipped[i] ^= 1 << (i % 8)
			with(fmt.Sprintf("bit %d of byte %d flipped", i%8, i), flipped)
			for _, n := range []int{7, 100, 4096} {
				if i%(11*stride) == 0 || i%4096 == 0 {
					zeroed := bytes.Clone(data)
					clear(zeroed[i:min(i+n, len(data))])
					with(fmt.Sprintf("%d bytes zeroed from %d on", n, i), zeroed)
				}
			}
			if i%(3*stride) == 0 {
				with(fmt.Sprintf("cut at %d", i), data[:i])
			}
		}
		with("zeroes behind it", append(bytes.Clone(data), make([]byte, 5000)...))
		with("rubbish behind it", append(bytes.Clone(data), bytes.Repeat([]byte{1, 2, 3}, 99)...))
		with("twice", append(bytes.Clone(data), data...))
		for _, other := range slices.Sorted(maps.Keys(files)) {
			with("as "+other, files[other])
		}
		missing := maps.Clone(files)
		delete(missing, name)
		do(name+" missing", name, missing)
	}
}

// segmented makes a log of two partitions, the first with several segments.
func segmented(t testing.TB, codec filelog.Codec) (filelog.Config, *vfs.MemFS, *model) {
	t.Helper()
	mem, m := vfs.NewMem(), newModel(2)
	c := filelog.Config{FS: mem, Dir: "log", Partitions: 2, Manual: true, SegmentBytes: 1500, Codec: codec, Now: clock()}
	log := mustOpen(t, c)
	for i := range 12 {
		if err := errors.Join(m.append(log, 0, 1+i%3, 150), m.commit(log)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(m.append(log, 1, 3, 100), m.commit(log), m.check(log), log.Close()); err != nil {
		t.Fatal(err)
	}
	return c, mem, m
}

// lossless opens a damaged log and reads it: each partition is returned completely, or
// up to an error that reports the damage. may is the number of messages at the end of
// each partition that may be missing.
func lossless(c filelog.Config, m *model, may [2]int) error {
	log, err := filelog.Open(c)
	if err != nil {
		return reportsDamage(err)
	}
	defer func() { _ = log.Close() }()
	for p, want := range m.appended {
		got, err := readAll(log, p, eventlog.Start)
		if cmp := m.compare(p, got); cmp != nil {
			return fmt.Errorf("partition %d: %w", p, cmp)
		}
		if err != nil {
			if err := reportsDamage(err); err != nil {
				return err
			}
			continue
		}
		if lost := len(want) - len(got); lost > may[p] {
			return fmt.Errorf("partition %d: %d messages are gone, and nothing was said", p, lost)
		}
	}
	return nil
}

// reportsDamage checks that an error reports damage.
func reportsDamage(err error) error {
	if errors.Is(err, eventlog.ErrCorrupt) || errors.Is(err, eventlog.ErrTrimmed) {
		return nil
	}
	return fmt.Errorf("the error is of no class: %w", err)
}

// A closed log, and any damage to one file: nothing is lost silently.
func TestDamage(t *testing.T) {
	t.Parallel()
	for _, codec := range []filelog.Codec{filelog.CodecNone, filelog.CodecS2} {
		t.Run(codec.String(), func(t *testing.T) {
			t.Parallel()
			c, mem, m := segmented(t, codec)
			files, n := treeOf(t, mem, "log"), 0
			files.damages(func(what, name string, damaged tree) {
				n++
				if strings.HasSuffix(name, "META") && damaged[name] == nil {
					return // then there is no log: see TestNoMeta
				}
				for _, readOnly := range []bool{true, false} {
					c.FS, c.ReadOnly = damaged.disk(t), readOnly
					if err := lossless(c, m, [2]int{}); err != nil {
						t.Fatalf("%s (read-only: %v): %v", what, readOnly, err)
					}
				}
			})
			t.Logf("%d damages", n)
		})
	}
}

// After a crash of the machine SYNCED can be as old as the log. Then only the frames of
// the last commit have no later frame that proves that they were durable.
func TestDamageWithOldMark(t *testing.T) {
	t.Parallel()
	c, mem, m := segmented(t, filelog.CodecNone)
	files := treeOf(t, mem, "log")
	c2 := c
	c2.Dir, c2.FS = "new", mem
	if err := mustOpen(t, c2).Close(); err != nil {
		t.Fatal(err)
	}
	fresh := treeOf(t, mem, "new")
	n := 0
	for p, may := range [][2]int{{3, 0}, {0, 3}} {
		old := maps.Clone(files)
		mark := fmt.Sprintf("log/%04d/SYNCED", p)
		old[mark] = fresh[fmt.Sprintf("new/%04d/SYNCED", p)]
		segments := 0
		old.damages(func(what, name string, damaged tree) {
			if !strings.HasPrefix(name, path.Dir(mark)) || !strings.HasSuffix(name, ".seg") {
				return
			}
			if damaged[name] == nil && name == last(old, path.Dir(mark)) {
				return // a missing last segment leaves no trace except in SYNCED
			}
			if name == last(old, path.Dir(mark)) && !strings.Contains(what, "flipped") {
				return // neither does a truncated end, or damage that includes the later frames
			}
			segments++
			n++
			c.FS = damaged.disk(t)
			if err := lossless(c, m, may); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		})
		if segments == 0 {
			t.Fatal("no segment was damaged")
		}
	}
	t.Logf("%d damages", n)
}

func last(files tree, dir string) string {
	var names []string
	for name := range files {
		if path.Dir(name) == dir && strings.HasSuffix(name, ".seg") {
			names = append(names, name)
		}
	}
	return slices.Max(names)
}

// A writer rebuilds a damaged SYNCED and continues; a reader's error says what to do.
func TestRebuildMark(t *testing.T) {
	t.Parallel()
	c, mem, m := segmented(t, filelog.CodecNone)
	files := treeOf(t, mem, "log")
	for name, data := range map[string][]byte{"gone": nil, "empty": {}, "rubbish": bytes.Repeat([]byte("rubbish"), 800)} {
		t.Run(name, func(t *testing.T) {
			damaged := maps.Clone(files)
			damaged["log/0000/SYNCED"] = data
			if data == nil {
				delete(damaged, "log/0000/SYNCED")
			}
			c, m := c, m.clone()
			c.FS, c.ReadOnly = damaged.disk(t), true
			if _, err := filelog.Open(c); !errors.Is(err, eventlog.ErrCorrupt) || !strings.Contains(err.Error(), "open the log for writing") {
				t.Fatalf("read-only: %v", err)
			}
			w := c
			w.ReadOnly = false
			log := mustOpen(t, w)
			reads := mustOpen(t, c)
			for range 2 {
				if err := errors.Join(m.check(log), m.check(reads), steps(log, m)); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(log.Close(), reads.Close()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Segments without META are not a new log.
func TestNoMeta(t *testing.T) {
	t.Parallel()
	c, mem, _ := segmented(t, filelog.CodecNone)
	if err := mem.Remove("log/META"); err != nil {
		t.Fatal(err)
	}
	if _, err := filelog.Open(c); !errors.Is(err, eventlog.ErrCorrupt) || !strings.Contains(err.Error(), "META") {
		t.Fatalf("Open: %v", err)
	}
}

// The writer does not continue after damage that it can detect.
func TestWriterRefuses(t *testing.T) {
	t.Parallel()
	c, mem, _ := segmented(t, filelog.CodecNone)
	files := treeOf(t, mem, "log")
	end := last(files, "log/0000")
	names := segmentsOf(t, mem, "log/0000")
	before := "log/0000/" + names[len(names)-2]
	for _, tc := range []struct {
		name   string
		damage func(files tree)
		want   string
	}{
		{"end cut off", func(f tree) { f[end] = f[end][:len(f[end])-1] }, end + ", offset"},
		{"last segment gone", func(f tree) { delete(f, end) }, end + ", offset 0"},
		{"last segment without header", func(f tree) { clear(f[end][:64]) }, "header is damaged"},
		{"last segment empty", func(f tree) { f[end] = nil }, "header is damaged"},
		{
			"new segment unfinished, and the one before is damaged", func(f tree) {
				f["log/0000/SYNCED"] = nil
				f[end] = nil
				f[before][len(f[before])-1] ^= 1
			}, "the next segment, " + path.Base(end) + ", was created after it",
		},
		{"no header, no mark", func(f tree) { clear(f[end][:64]); f["log/0000/SYNCED"] = nil }, "header is damaged"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			damaged := make(tree)
			for name, data := range files {
				damaged[name] = bytes.Clone(data)
			}
			tc.damage(damaged)
			c := c
			c.FS = damaged.disk(t)
			for range 2 { // a refusal changes nothing
				_, err := filelog.Open(c)
				if !errors.Is(err, eventlog.ErrCorrupt) || !strings.Contains(err.Error(), tc.want) {
					t.Fatalf("Open: %v, want %q", err, tc.want)
				}
			}
		})
	}
}

// The data after a torn frame does not reappear when a frame of the same size replaces
// the torn one.
func TestTornTailStaysAway(t *testing.T) {
	t.Parallel()
	const segment, mark = "log/0000/00000000000000000000.seg", "log/0000/SYNCED"
	mem, m := vfs.NewMem(), newModel(1)
	c := filelog.Config{FS: mem, Dir: "log", Partitions: 1, Manual: true, FrameBytes: 1, Now: clock()}
	log := mustOpen(t, c)
	if err := errors.Join(m.append(log, 0, 1, 50), m.commit(log)); err != nil {
		t.Fatal(err)
	}
	before := treeOf(t, mem, "log")
	if err := errors.Join(log.Append(0, slices.Repeat(message(50), 3)), log.Close()); err != nil {
		t.Fatal(err)
	}
	files := treeOf(t, mem, "log")
	files[segment][len(before[segment])+45] ^= 1 // the first of three, of one commit
	for range 2 {
		files[mark] = before[mark] // SYNCED is the old one after a crash
		mem = files.disk(t)
		c.FS = mem
		log = mustOpen(t, c)
		if err := m.check(log); err != nil {
			t.Fatal(err)
		}
		more := message(50)
		if err := errors.Join(log.Append(0, more), log.Close()); err != nil {
			t.Fatal(err)
		}
		m.appended[0] = append(m.appended[0], more...)
		m.allDurable()
		files = treeOf(t, mem, "log")
	}
}

// Complete frames in the place of others are damage.
func TestFramesSwapped(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	c := filelog.Config{FS: mem, Dir: "log", Partitions: 1, Manual: true, FrameBytes: 1}
	log := mustOpen(t, c)
	if err := errors.Join(log.Append(0, slices.Repeat(message(50), 4)), log.Close()); err != nil {
		t.Fatal(err)
	}
	const name = "log/0000/00000000000000000000.seg"
	files := treeOf(t, mem, "log")
	size := (len(files[name]) - 64) / 4
	frame := func(i int) []byte { return files[name][64+i*size:][:size] }
	first := bytes.Clone(frame(1))
	copy(frame(1), frame(2))
	copy(frame(2), first)
	c.FS = files.disk(t)
	log = mustOpen(t, c)
	defer mustClose(t, log)
	got, err := readAll(log, 0, eventlog.Start)
	if len(got) != 1 || !errors.Is(err, eventlog.ErrCorrupt) || !strings.Contains(err.Error(), "found frame 2 instead") {
		t.Fatalf("%d messages, %v", len(got), err)
	}
}

// A damage error names file, offset, frame, and what to do.
func TestDamageText(t *testing.T) {
	t.Parallel()
	c, mem, _ := segmented(t, filelog.CodecNone)
	files := treeOf(t, mem, "log")
	files["log/0000/00000000000000000000.seg"][64+40+5] ^= 1
	c.FS = files.disk(t)
	log := mustOpen(t, c)
	_, err := readAll(log, 0, eventlog.Start)
	const want = "filelog: read partition 0: log/0000/00000000000000000000.seg, offset 64, frame 0: the frame body does not match its checksum" +
		" (restore the file from a copy; without one, the messages from this offset on are lost): log is corrupt"
	if err == nil || err.Error() != want {
		t.Fatalf("error is\n%v, want\n%s", err, want)
	}
}

package checkpoint_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/checkpoint"
	"github.com/refloat/refloat/internal/checkpoint/storage"
	"github.com/refloat/refloat/internal/projection"
)

type quiet struct{}

func (quiet) Infof(string, ...any)      {}
func (quiet) Errorf(string, ...any)     {}
func (quiet) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

func openStore(tb testing.TB, dir string) *projection.Store {
	tb.Helper()
	s, err := projection.OpenStore(projection.StoreConfig{FS: vfs.Default, Dir: dir, Logger: quiet{}})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// fill writes incompressible records of the given size, in batches of 1000.
func fill(tb testing.TB, s *projection.Store, from, to, size int, meta string) {
	tb.Helper()
	random := rand.NewChaCha8(sha256.Sum256([]byte(meta)))
	value := make([]byte, size)
	for i := from; i < to; i += 1000 {
		b := s.NewBatch()
		for j := i; j < min(i+1000, to); j++ {
			_, _ = random.Read(value)
			if err := b.Set(fmt.Appendf(nil, "k%08d", j), value); err != nil {
				tb.Fatal(err)
			}
		}
		if err := s.Commit(b, []byte(meta)); err != nil {
			tb.Fatal(err)
		}
	}
}

// contentsOf returns the number of records of a store, a hash of all of them, and its
// meta.
func contentsOf(tb testing.TB, s *projection.Store) string {
	tb.Helper()
	n, sum, b := 0, sha256.New(), []byte(nil)
	err := s.Scan(nil, nil, func(k, v []byte) bool {
		n++
		b = binary.AppendUvarint(b[:0], uint64(len(k)))
		b = append(binary.AppendUvarint(append(b, k...), uint64(len(v))), v...)
		sum.Write(b)
		return true
	})
	if err != nil {
		tb.Fatal(err)
	}
	meta, err := s.Meta()
	if err != nil {
		tb.Fatal(err)
	}
	return fmt.Sprintf("%d records, %x, meta %s", n, sum.Sum(nil), meta)
}

// TestStore saves a real store twice, while it is being written, and restores both.
func TestStore(t *testing.T) {
	t.Parallel()
	for name, kind := range kinds(t) {
		if name == "injected" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := tempDir(t)
			v := newVault(t, kind, dir, newClock().now)
			s := openStore(t, filepath.Join(dir, "state"))
			defer s.Close()
			fill(t, s, 0, 100_000, 320, "one")
			want := map[uint64]string{1: contentsOf(t, s)}
			checkpointed := func(seq uint64) checkpoint.Info {
				info, err := v.Save(t.Context(), 3, s.Checkpoint, at(seq))
				if err != nil {
					t.Fatal(err)
				}
				return info
			}
			first := checkpointed(1)
			// Tables that a compaction rewrites are uploaded again. Compaction ends
			// eventually.
			seq, further := uint64(1), first
			for ticker := time.NewTicker(50 * time.Millisecond); seq < 100; <-ticker.C {
				seq++
				fill(t, s, 100_000, 103_000, 320, fmt.Sprint("further ", seq))
				want[seq] = contentsOf(t, s)
				if further = checkpointed(seq); further.Uploaded < further.Bytes/2 {
					break
				}
			}
			t.Logf("first: %d bytes in %d files, %d uploaded; further, %d: %d in %d, %d",
				first.Bytes, first.Files, first.Uploaded, seq, further.Bytes, further.Files, further.Uploaded)
			if further.Uploaded >= further.Bytes/2 {
				t.Errorf("a further one uploaded %d of %d bytes", further.Uploaded, further.Bytes)
			}
			fill(t, s, 0, 50_000, 320, "three")
			if _, err := v.Prune(t.Context(), 3); err != nil {
				t.Fatal(err)
			}
			if got := len(list(t, v)); got != min(3, int(seq)) {
				t.Errorf("%d checkpoints are left of %d", got, seq)
			}
			for i, info := range list(t, v) {
				to := filepath.Join(dir, fmt.Sprint("restored", i))
				if err := v.Restore(t.Context(), 3, info, to); err != nil {
					t.Fatal(err)
				}
				r := openStore(t, to)
				if got := contentsOf(t, r); got != want[info.Seq] {
					t.Errorf("seq %d restores as %s, want %s", info.Seq, got, want[info.Seq])
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// BenchmarkStore measures a checkpoint of 10⁶ records of about 100 bytes in a
// directory: the local copy, a first and a further save, and a restore.
func BenchmarkStore(b *testing.B) {
	const records = 1_000_000
	ctx := context.Background()
	dir := b.TempDir()
	directory, err := storage.Open(ctx, "file://"+filepath.Join(dir, "bucket"), environment(nil))
	if err != nil {
		b.Fatal(err)
	}
	s := openStore(b, filepath.Join(dir, "state"))
	defer s.Close()
	fill(b, s, 0, records, 96, "one")
	n := 0
	vault := func(prefix string) *checkpoint.Vault {
		v, err := checkpoint.New(checkpoint.Config{Storage: directory, Prefix: prefix, Scratch: filepath.Join(dir, "scratch"), Now: time.Now})
		if err != nil {
			b.Fatal(err)
		}
		return v
	}
	save := func(v *checkpoint.Vault) checkpoint.Info {
		n++
		info, err := v.Save(ctx, 3, s.Checkpoint, at(uint64(n)))
		if err != nil {
			b.Fatal(err)
		}
		return info
	}
	report := func(b *testing.B, info checkpoint.Info) {
		b.ReportMetric(float64(info.Bytes)/1e6, "MB")
		b.ReportMetric(float64(info.Uploaded)/1e6, "MB-uploaded")
		b.ReportMetric(float64(info.Files), "files")
	}
	b.Run("copy", func(b *testing.B) {
		for b.Loop() {
			n++
			if err := s.Checkpoint(filepath.Join(dir, fmt.Sprint("copy", n))); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			report(b, save(vault(fmt.Sprint("first", n))))
		}
	})
	v := vault("further")
	save(v)
	b.Run("further", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			fill(b, s, records, records+10_000, 96, fmt.Sprint(n))
			b.StartTimer()
			report(b, save(v))
		}
	})
	newest := save(v)
	restores := func(b *testing.B, then func(dir string)) {
		for b.Loop() {
			n++
			to := filepath.Join(dir, fmt.Sprint("restored", n))
			if err := v.Restore(ctx, 3, newest, to); err != nil {
				b.Fatal(err)
			}
			then(to)
		}
		report(b, newest)
	}
	b.Run("restore", func(b *testing.B) { restores(b, func(string) {}) })
	b.Run("restore+open", func(b *testing.B) {
		restores(b, func(to string) {
			r := openStore(b, to)
			if _, err := r.Meta(); err != nil {
				b.Fatal(err)
			}
			if err := r.Close(); err != nil {
				b.Fatal(err)
			}
		})
	})
}

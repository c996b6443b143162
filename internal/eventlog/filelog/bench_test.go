package filelog_test

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/eventlog/recording"
)

// history returns the messages of a recording, as fed to a log.
func history(b *testing.B) (msgs []eventlog.Message, bytes int64) {
	entries, err := recording.ReadFile("../../../testdata/recordings/retried.jsonl.gz")
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range entries {
		e.Message.Origin = eventlog.Origin{}
		msgs = append(msgs, e.Message)
		bytes += int64(len(e.Message.Payload))
	}
	return msgs, bytes
}

func openOnDisk(b *testing.B, codec filelog.Codec) *filelog.Log {
	log, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: b.TempDir(), Partitions: 1, Codec: codec})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = log.Close() })
	return log
}

// BenchmarkAppendSync waits for the disk after each batch.
func BenchmarkAppendSync(b *testing.B) {
	msgs, bytes := history(b)
	size := bytes / int64(len(msgs))
	for _, batch := range []int{1, 64, 1000} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			log := openOnDisk(b, filelog.CodecNone)
			b.ReportAllocs()
			b.SetBytes(int64(batch) * size)
			for b.Loop() {
				if err := log.AppendSync(b.Context(), 0, msgs[:batch]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(batch)*float64(b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}

// BenchmarkAppendSyncPartitions is one commit that touches several partitions.
func BenchmarkAppendSyncPartitions(b *testing.B) {
	msgs, _ := history(b)
	for _, partitions := range []int{1, 3, 8} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			log, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: b.TempDir(), Partitions: partitions, QueueBytes: 1 << 30})
			if err != nil {
				b.Fatal(err)
			}
			defer mustClose(b, log)
			for b.Loop() {
				for p := range partitions {
					if err := log.Append(p, msgs[:2]); err != nil {
						b.Fatal(err)
					}
				}
				if err := log.Flush(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAppend queues one batch after the other and waits once at the end, like a
// publisher that runs ahead.
func BenchmarkAppend(b *testing.B) {
	msgs, bytes := history(b)
	size := bytes / int64(len(msgs))
	for _, codec := range []filelog.Codec{filelog.CodecNone, filelog.CodecS2} {
		for _, batch := range []int{1, 64, 1000} {
			b.Run(fmt.Sprintf("codec=%v/batch=%d", codec, batch), func(b *testing.B) {
				log := openOnDisk(b, codec)
				b.ReportAllocs()
				b.SetBytes(int64(batch) * size)
				n := 0
				for b.Loop() {
					if n+batch > len(msgs) {
						n = 0
					}
					if err := log.Append(0, msgs[n:n+batch]); err != nil {
						b.Fatal(err)
					}
					n += batch
				}
				if err := log.Flush(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(batch)*float64(b.N)/b.Elapsed().Seconds(), "msg/s")
			})
		}
	}
}

// BenchmarkRead reads a whole log. MB/s count payloads.
func BenchmarkRead(b *testing.B) {
	msgs, bytes := history(b)
	const times = 20
	for _, codec := range []filelog.Codec{filelog.CodecNone, filelog.CodecS2} {
		for _, batch := range []int{1, 64, 1000} {
			b.Run(fmt.Sprintf("codec=%v/batch=%d", codec, batch), func(b *testing.B) {
				log := openOnDisk(b, codec)
				for range times {
					for i := 0; i < len(msgs); i += batch {
						if err := log.Append(0, msgs[i:min(i+batch, len(msgs))]); err != nil {
							b.Fatal(err)
						}
						if batch == 1 && i%8 == 0 { // otherwise the queue combines them into large frames
							if err := log.Flush(b.Context()); err != nil {
								b.Fatal(err)
							}
						}
					}
				}
				if err := log.Flush(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				b.SetBytes(times * bytes)
				for b.Loop() {
					if n := count(b, log); n != times*len(msgs) {
						b.Fatalf("read %d messages, want %d", n, times*len(msgs))
					}
				}
				b.ReportMetric(times*float64(len(msgs))*float64(b.N)/b.Elapsed().Seconds(), "msg/s")
			})
		}
	}
}

func count(b *testing.B, log *filelog.Log) int {
	r, err := log.Open(0, eventlog.Start)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	dst := make([]eventlog.Message, 1024)
	for n := 0; ; {
		k, err := r.Read(dst)
		if err != nil {
			b.Fatal(err)
		}
		if k == 0 {
			return n
		}
		n += k
	}
}

// BenchmarkSeek opens a reader in the middle of a segment.
func BenchmarkSeek(b *testing.B) {
	msgs, _ := history(b)
	log := openOnDisk(b, filelog.CodecNone)
	for range 20 {
		if err := log.Append(0, msgs); err != nil {
			b.Fatal(err)
		}
	}
	if err := log.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	end, err := log.End(0)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	dst := make([]eventlog.Message, 1)
	for b.Loop() {
		r, err := log.Open(0, eventlog.Position{Entry: end.Entry / 2, Batch: 3})
		if err != nil {
			b.Fatal(err)
		}
		if n, err := r.Read(dst); n != 1 || err != nil {
			b.Fatal(n, err)
		}
		if err := r.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

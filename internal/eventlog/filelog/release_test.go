package filelog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
)

// TestRelease: with eventlog.Release a reader returns the same messages, whether a Read could end within a frame, with one, or after
// several, and takes no memory for each.
func TestRelease(t *testing.T) {
	const messages, frame = 2000, 100
	log, err := filelog.Open(filelog.Config{FS: vfs.NewMem(), Dir: "dir", Partitions: 1, Codec: filelog.CodecS2})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	payload := func(n int) string { return fmt.Sprint(n, strings.Repeat(string(rune('a'+n%26)), 500)) }
	for from := 0; from < messages; from += frame {
		var batch []eventlog.Message
		for n := from; n < from+frame; n++ {
			batch = append(batch, eventlog.Message{Payload: []byte(payload(n))})
		}
		if err := log.AppendSync(t.Context(), 0, batch); err != nil {
			t.Fatal(err)
		}
	}
	for _, size := range []int{1, 7, frame, 3*frame + 50} {
		r, err := log.Open(0, eventlog.Start)
		if err != nil {
			t.Fatal(err)
		}
		chunk, seen, bodies := make([]eventlog.Message, size), 0, map[*byte]bool{}
		for {
			eventlog.Release(r)
			n, err := r.Read(chunk)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				break
			}
			for i := range chunk[:n] {
				if want := payload(seen); string(chunk[i].Payload) != want {
					t.Fatalf("%d at once: message %d is %.20q, want %.20q", size, seen, chunk[i].Payload, want)
				}
				if seen%frame == 0 {
					bodies[&chunk[i].Payload[0]] = true
				}
				seen++
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if seen != messages {
			t.Errorf("%d at once: %d messages, want %d", size, seen, messages)
		}
		if len(bodies) > 6+2*size/frame { // a larger message number makes a larger frame
			t.Errorf("%d at once: %d pieces of memory for %d frames", size, len(bodies), messages/frame)
		}
	}
}

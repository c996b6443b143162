package independent

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var firstSeed = flag.Uint64("seed", 1, "seed of the first random history")

// histories is how many are compared: HISTORIES, or a few.
func histories(t *testing.T) uint64 {
	t.Helper()
	if s := os.Getenv("HISTORIES"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("HISTORIES: %v", err)
		}
		return n
	}
	return 500
}

// TestIndependently holds the engine against this package's model.
func TestIndependently(t *testing.T) {
	t.Parallel()
	shards, n := uint64(runtime.GOMAXPROCS(0)), histories(t)
	for shard := range shards {
		t.Run(fmt.Sprintf("shard=%d", shard), func(t *testing.T) {
			t.Parallel()
			for seed := *firstSeed + shard; seed < *firstSeed+n; seed += shards {
				h := generate(seed)
				if differs(t, h) == "" {
					continue
				}
				h = shrink(t, h)
				t.Fatalf("seed %d (-model +engine):\n%s\nhistory, of %d partitions:\n%s", seed, differs(t, h), h.Partitions, h)
			}
		})
	}
}

// differs says where model and engine first differ; "": nowhere.
func differs(t *testing.T, h history) string {
	t.Helper()
	m := newModel(h.Partitions)
	e, err := newEngine(h.Partitions)
	if err != nil {
		t.Fatal(err)
	}
	for i, msg := range h.Messages {
		want := m.process(msg)
		got, err := e.process(msg)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Sprintf("message %d:\n%s", i, diff)
		}
	}
	return ""
}

// shrink leaves out what is not needed for model and engine to differ.
func shrink(t *testing.T, h history) history {
	t.Helper()
	for again := true; again; {
		again = false
		for i := len(h.Messages) - 1; i >= 0; i-- {
			if i > 0 {
				less := h
				less.Messages = append(append([]message(nil), h.Messages[:i]...), h.Messages[i+1:]...)
				if differs(t, less) != "" {
					h, again = less, true
					continue
				}
			}
			for k := len(h.Messages[i].Events) - 1; k >= 0 && len(h.Messages[i].Events) > 1; k-- {
				less := h
				less.Messages = append([]message(nil), h.Messages...)
				less.Messages[i].Events = append(append([]event(nil), h.Messages[i].Events[:k]...), h.Messages[i].Events[k+1:]...)
				if differs(t, less) != "" {
					h, again = less, true
				}
			}
		}
	}
	return h
}

func (h history) String() string {
	out := ""
	for i, m := range h.Messages {
		if m.Config != nil {
			out += fmt.Sprintf("%d:\n%s", i, m.Config.yaml())
			continue
		}
		out += fmt.Sprintf("%d: %s/%s at %d\n", i, m.Queue, m.Set, m.Publish)
		for _, e := range m.Events {
			out += fmt.Sprintf("   %+v\n", e)
		}
	}
	return out
}

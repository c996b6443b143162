package policylog_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policy/policylog"
)

// large is a set of about 50 kB that compresses badly, another one for each seed.
func large(t *testing.T, seed uint64) *policyfile.Set {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	var text strings.Builder
	text.WriteString("apiVersion: armadaproject.io/v1\nkind: RetryPolicy\nmetadata: {name: p}\nspec:\n  defaultAction: Fail\n  rules:\n")
	for i := range 200 {
		fmt.Fprintf(&text, "  - {name: r%d, action: Retry, onFailureCategory: [", i)
		for range 10 {
			fmt.Fprintf(&text, "\"%016x\", ", rng.Uint64())
		}
		text.WriteString("]}\n")
	}
	set, err := policyfile.Parse([]policyfile.File{{Name: "p.yaml", Data: []byte(text.String())}})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// Who decides by the newest generation needs no memory for the others, and still finds them. Not parallel: it measures
// the heap.
func TestMemoryOfGenerations(t *testing.T) { //nolint:paralleltest // see above
	w := newWorld(t)
	digests := map[uint64][32]byte{}
	written := uint64(0)
	write := func(to uint64) {
		for ; written < to; written++ {
			set := large(t, written)
			digests[written+1] = set.Digest()
			payload, err := policylog.Encode(&policylog.Proposal{Set: set, Author: "ann"})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.append(context.Background(), payload); err != nil {
				t.Fatal(err)
			}
		}
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what pools hold goes with the second
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	log, err := policylog.Open(w.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	newest := func() uint64 {
		if err := log.Refresh(); err != nil {
			t.Fatal(err)
		}
		n, _ := log.Newest()
		return n
	}
	write(10)
	newest()
	log.NewestOnly()
	few := heap()
	for to := uint64(20); to <= 120; to += 10 { // as many at a time as before, since what was read last is kept
		write(to)
		if n := newest(); n != to {
			t.Fatalf("the newest generation is %d", n)
		}
	}
	if many := heap(); many-few > 1<<20 { // kept, their texts would take more than twice that
		t.Errorf("120 generations of 50 kB take %d KiB more than 10", (many-few)>>10)
	}
	if _, set := log.Newest(); set.Digest() != digests[120] {
		t.Error("the newest generation is another one")
	}
	_, ok, err := log.Held(7)
	for ; err == nil && !ok; _, ok, err = log.Held(7) {
		if err := log.Refresh(); err != nil {
			t.Fatal(err)
		}
	}
	if set, _, _ := log.Held(7); err != nil || set.Digest() != digests[7] {
		t.Errorf("generation 7: %v", err)
	}
	if n := newest(); n != 120 {
		t.Errorf("the newest generation is %d after another was read", n)
	}
}

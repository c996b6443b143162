package policylog_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
)

// large is a set of about 50 kB that compresses badly.
func large(t *testing.T) *policyfile.Set {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
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

// growing is a world whose log grows by generations of 50 kB.
type growing struct {
	*world
	set     *policyfile.Set
	digests [][32]byte // of each generation, from 1
}

func (g *growing) to(n int) {
	g.Helper()
	var batch []eventlog.Message
	for len(g.digests) < n {
		set, _, err := g.set.With(policyfile.File{Name: "test", Data: fmt.Appendf(nil, "{kind: Queue, name: q, pausedUntil: %q}", time.Unix(int64(1e9+len(g.digests)), 0).UTC().Format(time.RFC3339))})
		if err != nil {
			g.Fatal(err)
		}
		g.digests = append(g.digests, set.Digest())
		payload, err := policylog.Encode(&policylog.Proposal{Set: set, Author: "ann"})
		if err != nil {
			g.Fatal(err)
		}
		if batch = append(batch, eventlog.Message{Payload: payload}); len(batch) == 100 || len(g.digests) == n {
			if err := g.log.AppendSync(g.Context(), 0, batch); err != nil {
				g.Fatal(err)
			}
			batch = nil
		}
	}
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what pools hold goes with the second
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// What a process holds of the policies log does not grow with the texts of its history, however many follow it, and
// everyone still finds every generation. Not parallel: it measures the heap.
func TestMemoryOfGenerations(t *testing.T) { //nolint:paralleltest // see above
	const few, many, followers = 10, 2000, 64
	w := &growing{world: newWorld(t), set: large(t)}
	w.to(few)
	opened := &counted{Topic: w.log}
	shared := policylog.NewShared(opened)
	defer shared.Close()
	store := policylog.NewStore(shared.Follow(), w.append, time.Now)
	defer store.Close()
	logs := make([]*policylog.Log, followers)
	for i := range logs {
		logs[i] = shared.Follow()
		defer logs[i].Close()
	}
	atEnd := func(want int) {
		t.Helper()
		if now, err := store.Newest(t.Context()); err != nil || now.Generation() != uint64(want) {
			t.Fatalf("generation %d, %v, want %d", now.Generation(), err, want)
		}
		for _, log := range logs {
			if ended, err := log.AtEnd(); !ended || err != nil {
				t.Fatalf("AtEnd = %t, %v", ended, err)
			}
			if n, set := log.Newest(); n != uint64(want) || set.Digest() != w.digests[want-1] {
				t.Fatalf("the newest generation is %d, want %d", n, want)
			}
		}
	}
	atEnd(few)
	before := heapInUse()
	w.to(many)
	atEnd(many)
	grown := heapInUse() - before
	t.Logf("%d generations take %d KiB more than %d", many, grown>>10, few)
	if grown > 4<<20 { // their texts take 50 MB
		t.Errorf("%d generations of 50 kB take %d KiB more than %d", many, grown>>10, few)
	}
	if opened.now != 1 {
		t.Errorf("%d readers of the log are open, want 1", opened.now)
	}
	for n := uint64(7); n <= 9; n++ {
		set, ok, err := logs[0].Held(n)
		if !ok || err != nil || set.Digest() != w.digests[n-1] {
			t.Errorf("generation %d: %t, %v", n, ok, err)
		}
		if then, err := store.At(t.Context(), n); err != nil || then.Set.Digest() != w.digests[n-1] {
			t.Errorf("generation %d in the store: %v", n, err)
		}
	}
	if err := logs[0].Rest(); err != nil || opened.now != 1 {
		t.Errorf("%d readers of the log are open, %v, want 1", opened.now, err)
	}
	atEnd(many)
}

// counted counts the open readers of a topic.
type counted struct {
	eventlog.Topic
	now int
}

func (c *counted) Open(p int, after eventlog.Position) (eventlog.Reader, error) {
	r, err := c.Topic.Open(p, after)
	if err == nil {
		c.now++
	}
	return &countedReader{r, c}, err
}

type countedReader struct {
	eventlog.Reader
	topic *counted
}

func (r *countedReader) Close() error {
	r.topic.now--
	return r.Reader.Close()
}

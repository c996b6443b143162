package policylog_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
)

// world is a policies log with any number of stores on it.
type world struct {
	*testing.T
	log *filelog.Log
}

func newWorld(t *testing.T) *world {
	t.Helper()
	log, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: filepath.Join(t.TempDir(), "policies"), Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	return &world{t, log}
}

func (w *world) append(ctx context.Context, payload []byte) error {
	return w.log.AppendSync(ctx, 0, []eventlog.Message{{Payload: payload}})
}

func (w *world) store(write func(context.Context, []byte) error) *policylog.Store {
	w.Helper()
	s, err := policylog.OpenStore(w.log, write, func() time.Time { return time.Unix(7, 0) })
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = s.Close() })
	return s
}

// putting adds or replaces a queue.
func putting(name, rest string) func(policylog.Snapshot) (*policyfile.Set, []policylog.Override, error) {
	return func(s policylog.Snapshot) (*policyfile.Set, []policylog.Override, error) {
		set, _, err := s.Base.With(policyfile.File{Name: "test", Data: []byte("{kind: Queue, name: " + name + rest + "}")})
		return set, s.ActiveOverrides(), err
	}
}

func queue(name string) policyfile.ID { return policyfile.ID{Kind: policyfile.KindQueue, Name: name} }

func TestStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.store(w.append)
	do := func(e policylog.Edit, want uint64) policylog.Outcome {
		t.Helper()
		v, err := s.Do(t.Context(), e)
		if err != nil || v.Number != want {
			t.Fatalf("Do = %v, %v; want generation %d", v, err, want)
		}
		return v
	}
	v := do(policylog.Edit{Author: "ann", Reason: "new", Make: putting("a", "")}, 1)
	if v.Author != "ann" || v.Reason != "new" || v.Time != 7e9 || !slices.Equal(v.Changes, []policylog.Change{{queue("a"), policylog.Created}}) {
		t.Errorf("version %+v %v", v.Entry, v.Changes)
	}
	if v := do(policylog.Edit{Make: putting("a", "")}, 1); v.Made {
		t.Error("nothing was to be changed")
	}
	do(policylog.Edit{Request: "r#1", Make: putting("b", "")}, 2)
	do(policylog.Edit{Make: putting("a", ", mode: Shadow")}, 3)
	if v := do(policylog.Edit{Request: "r#1", Make: putting("b", "")}, 2); !v.Made { // asked again, later
		t.Error("it was made by this request")
	}
	if _, err := s.Do(t.Context(), policylog.Edit{Request: "r#2", Make: putting("c", "")}); !errors.Is(err, policylog.ErrRequestUsed) {
		t.Errorf("another request of the same name: %v", err)
	}
	kill := policylog.Override{Override: policyfile.Override{Queue: "b", Kill: true}, Author: "bob", Reason: "fire", Time: 5}
	node := policylog.Override{Override: policyfile.Override{Node: "n", AvoidedUntil: 1e18, TrustedUntil: 2e18}, Author: "guard", Reason: "4 of 4", Time: 6}
	breaker := policylog.Override{Override: policyfile.Override{Queue: "b", Category: "infra", Subcategory: "gpu", HeldUntil: 1e18}, Author: "eve", Reason: "down", Time: 7}
	do(policylog.Edit{Make: func(s policylog.Snapshot) (*policyfile.Set, []policylog.Override, error) {
		return s.Base, []policylog.Override{kill, node, breaker}, nil
	}}, 4)
	do(policylog.Edit{Make: putting("b", ", mode: Shadow")}, 5)

	for _, s := range []*policylog.Store{s, w.store(w.append)} {
		now, err := s.Newest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		body, _ := now.Set.Body(queue("b"))
		plain, _ := now.Base.Body(queue("b"))
		if body != `{"killed":true,"mode":"Shadow","name":"b"}` || plain != `{"mode":"Shadow","name":"b"}` || !slices.Equal(now.ActiveOverrides(), []policylog.Override{kill, node, breaker}) {
			t.Errorf("with overrides %s, base %s, overrides %v", body, plain, now.ActiveOverrides())
		}
		if now.Since[queue("a")] != 3 || now.Since[queue("b")] != 5 {
			t.Errorf("since %v", now.Since)
		}
		then, err := s.At(t.Context(), 3)
		if body, _ := then.Base.Body(queue("b")); err != nil || body != `{"name":"b"}` || then.Since[queue("b")] != 2 {
			t.Errorf("at 3: %s, %v, %v", body, then.Since, err)
		}
		if history, err := s.History(t.Context()); err != nil || len(history) != 5 || history[0].Number != 5 {
			t.Errorf("history %v, %v", history, err)
		}
		if _, err := s.At(t.Context(), 9); !errors.Is(err, policylog.ErrNoGeneration) {
			t.Errorf("at 9: %v", err)
		}
	}
}

// Of writers at once, over several stores, each wins once: no change is lost, and
// those that came too late do not count.
func TestRace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var wg sync.WaitGroup
	const stores, each = 4, 10
	for i := range stores {
		s := w.store(w.append)
		wg.Go(func() {
			for j := range each {
				if _, err := s.Do(t.Context(), policylog.Edit{Make: putting(fmt.Sprintf("q%d-%d", i, j), "")}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	log, err := policylog.Open(w.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if err := log.Refresh(); err != nil {
		t.Fatal(err)
	}
	if n := len(log.Entries(0)); n != stores*each {
		t.Errorf("%d generations count, want %d", n, stores*each)
	}
	if _, set := log.Newest(); len(set.Queues()) != stores*each {
		t.Errorf("%d queues", len(set.Queues()))
	}
	outrun, all := 0, readAll(t, w.log)
	for n := range all {
		if log.Superseded(uint64(n + 1)) {
			outrun++
		}
	}
	if outrun != all-stores*each {
		t.Errorf("%d messages, %d count, %d came too late", all, stores*each, outrun)
	}
}

func readAll(t *testing.T, topic eventlog.Topic) int {
	t.Helper()
	r, err := topic.Open(0, eventlog.Start)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	total, chunk := 0, make([]eventlog.Message, 16)
	for {
		n, err := r.Read(chunk)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return total
		}
		total += n
	}
}

// TestRequestNameRace checks that of two concurrent changes with the same request id one is made, and the other
// gets an error.
func TestRequestNameRace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	quicker := w.store(w.append)
	slow := w.store(func(ctx context.Context, payload []byte) error {
		_, err := quicker.Do(ctx, policylog.Edit{Request: "r#1", Make: putting("a", "")})
		return errors.Join(err, w.append(ctx, payload))
	})
	if v, err := slow.Do(t.Context(), policylog.Edit{Request: "r#2", Make: putting("b", "")}); !errors.Is(err, policylog.ErrRequestUsed) {
		t.Errorf("answered with %+v, %v", v.Version, err)
	}
	if now, err := slow.Newest(t.Context()); err != nil || !slices.Equal(now.Set.Queues(), []string{"a"}) {
		t.Errorf("there is %v, %v", now.Set.Queues(), err)
	}
}

// A write that fails may have happened: the log says which, and where it cannot be
// said, asking again with the same request changes nothing twice.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lost := errors.New("connection lost")
	written := w.store(func(ctx context.Context, payload []byte) error { return errors.Join(w.append(ctx, payload), lost) })
	if v, err := written.Do(t.Context(), policylog.Edit{Make: putting("a", "")}); err != nil || v.Number != 1 {
		t.Errorf("written: %v, %v", v, err)
	}
	never := w.store(func(context.Context, []byte) error { return lost })
	if _, err := never.Do(t.Context(), policylog.Edit{Make: putting("b", "")}); !errors.Is(err, policylog.ErrUnknown) || !errors.Is(err, lost) {
		t.Errorf("not written: %v", err)
	}
	if now, err := never.Newest(t.Context()); err != nil || now.Generation() != 1 {
		t.Errorf("newest %d, %v", now.Generation(), err)
	}
}

// What another version of the program wrote counts, but is passed over; and nothing
// is written over it.
func TestForeignContent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.store(w.append)
	if _, err := s.Do(t.Context(), policylog.Edit{Make: putting("a", "")}); err != nil {
		t.Fatal(err)
	}
	if err := w.append(t.Context(), foreign(t, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Do(t.Context(), policylog.Edit{Make: putting("b", "")}); !errors.Is(err, policylog.ErrUnusable) || !strings.Contains(err.Error(), "upgrade") {
		t.Errorf("Do over it: %v", err)
	}
	now, err := s.Newest(t.Context())
	if err != nil || now.Generation() != 1 {
		t.Errorf("newest %d, %v", now.Generation(), err)
	}
	var notified []uint64
	log, err := policylog.Open(w.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	log.OnUnusable = func(n uint64, _ error) { notified = append(notified, n) }
	if err := errors.Join(w.append(t.Context(), []byte("garbage")), log.Refresh()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if n, _ := log.Newest(); n != 1 {
			t.Errorf("newest %d", n)
		}
	}
	slices.Sort(notified)
	if counts := log.Entries(1); !slices.Equal(notified, []uint64{2, 3}) || len(counts) != 1 || counts[0].Number != 2 {
		t.Errorf("told of %v, %v count", notified, counts)
	}
	if _, _, err := log.Held(2); !errors.Is(err, policylog.ErrUnusable) {
		t.Errorf("Held(2): %v", err)
	}
}

// Large sets are compressed, and small messages that become large are refused.
func TestLargeSet(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&b, "---\n{kind: Queue, name: queue-%d, retryPolicies: [infra, training]}\n", i)
	}
	set, err := policyfile.Parse([]policyfile.File{{Name: "q", Data: []byte(b.String())}})
	if err != nil {
		t.Fatal(err)
	}
	overrides := []policylog.Override{{Override: policyfile.Override{Kill: true}}}
	payload, err := policylog.Encode(&policylog.Proposal{Set: set, Overrides: overrides})
	if err != nil || len(payload) > len(set.Canonical())/3 {
		t.Fatalf("%d bytes of %d, %v", len(payload), len(set.Canonical()), err)
	}
	w := newWorld(t)
	s := w.store(w.append)
	if err := w.append(t.Context(), payload); err != nil {
		t.Fatal(err)
	}
	now, err := s.Newest(t.Context())
	if err != nil || now.Base.Digest() != set.Digest() || now.Set.Digest() == set.Digest() {
		t.Errorf("read back: %v", err)
	}
	if err := w.append(t.Context(), bomb(t)); err != nil {
		t.Fatal(err)
	}
	if now, err := s.Newest(t.Context()); err != nil || now.Generation() != 1 {
		t.Errorf("after a bomb: generation %d, %v", now.Generation(), err)
	}
}

package projection

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// name is what stands in ids: any bytes, among them those that keys escape.
var name = rapid.OneOf(
	rapid.Just(""),
	rapid.StringOfN(rapid.RuneFrom([]rune{0, 1, 'a', 'b'}), 0, 4, -1),
	rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2, 'a', 0xfe, 0xff}), 0, 4), func(b []byte) string { return string(b) }),
	rapid.String(),
)

var names = rapid.Map(rapid.SliceOfN(name, 0, 3), func(s []string) []string {
	if len(s) == 0 {
		return nil
	}
	return s
})

var count = rapid.OneOf(rapid.Uint32Range(0, 2), rapid.Uint32())

var nanos = rapid.OneOf(rapid.Int64Range(-1, 1), rapid.Int64())

var anyRun = rapid.Custom(func(t *rapid.T) *Run {
	yes := func(label string) bool { return rapid.Bool().Draw(t, label) }
	r := &Run{
		ID: name.Draw(t, "run"), Seen: yes("seen"), Index: count.Draw(t, "index"), Leased: yes("leased"),
		LeasedNode: name.Draw(t, "leased node"), RunningNode: name.Draw(t, "running node"),
		End: RunEnd(rapid.IntRange(0, int(Failed)).Draw(t, "end")), Outcome: Outcome(rapid.IntRange(0, int(LeftAlone)).Draw(t, "outcome")),
		Preempted: yes("preempted"), Returned: yes("returned"), Attempted: yes("attempted"), Gone: yes("gone"),
		RetryAfter: nanos.Draw(t, "after"), ReadyAfter: nanos.Draw(t, "ready"),
		Running: yes("running"),
	}
	if r.Running { // it has not ended
		r.End, r.RetryAfter, r.RunningSince = NotEnded, 0, nanos.Draw(t, "running since")
	}
	return r
})

var anyJob = rapid.Custom(func(t *rapid.T) *Job {
	yes := func(label string) bool { return rapid.Bool().Draw(t, label) }
	j := &Job{
		ID: name.Draw(t, "job"), Known: yes("known"), Queue: name.Draw(t, "queue"), Set: name.Draw(t, "set"),
		RetryPolicies: name.Draw(t, "policies"), FailFast: yes("fail fast"), GangID: name.Draw(t, "gang"), GangSize: name.Draw(t, "size"),
		InitContainers: names.Draw(t, "init"), GraceSeconds: nanos.Draw(t, "grace"),
		Runs: count.Draw(t, "runs"), Open: count.Draw(t, "open"), Older: yes("older"), FailedNodes: names.Draw(t, "nodes"),
		Granted: count.Draw(t, "granted"), LegacyReturns: count.Draw(t, "legacy"), Orders: names.Draw(t, "orders"),
		CancelRequested: yes("requested"), Cancelled: yes("cancelled"), Ended: yes("ended"), Verdict: yes("verdict"),
		EndedAt: nanos.Draw(t, "ended at"), FirstSeen: nanos.Draw(t, "first seen"), VerdictAt: nanos.Draw(t, "verdict at"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "rules") {
		j.Rules = append(j.Rules, RuleCount{name.Draw(t, "policy"), name.Draw(t, "rule"), count.Draw(t, "granted"), count.Draw(t, "ignored")})
	}
	if j.Runs > 0 {
		j.Latest = anyRun.Draw(t, "latest")
	}
	return j
})

// TestRoundTrip: what was encoded is decoded, also behind other bytes, and
// nothing shorter, longer or of another version is.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := anyJob.Draw(t, "job")
		b := appendJob(nil, j)
		got, err := decodeJob(j.ID, b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(j, got); diff != "" {
			t.Fatalf("(-encoded +decoded):\n%s", diff)
		}
		if after := appendJob([]byte("x"), j); string(after) != "x"+string(b) {
			t.Fatalf("behind other bytes it is %x, alone %x", after, b)
		}
		damage(t, b, func(b []byte) error { _, err := decodeJob(j.ID, b); return err })

		r := anyRun.Draw(t, "run")
		b = appendRun(nil, r)
		gotRun, err := decodeRun(r.ID, b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r, gotRun); diff != "" {
			t.Fatalf("(-encoded +decoded):\n%s", diff)
		}
		damage(t, b, func(b []byte) error { _, err := decodeRun(r.ID, b); return err })
	})
}

// TestOlderRecords: what programs wrote that did not keep since when a run is running is read, and written again alike.
func TestOlderRecords(t *testing.T) {
	const run, job = "0113000001026e31026e320000", "0141017101730000000000020100000000000a0003722d3113000001026e31026e3200000167046d61696e010200"
	wantRun := &Run{ID: "r-1", Seen: true, Index: 1, Leased: true, LeasedNode: "n1", RunningNode: "n2", Attempted: true}
	wantJob := &Job{
		ID: "j", Known: true, Queue: "q", Set: "s", Runs: 2, Open: 1, Older: true, Latest: wantRun, FirstSeen: 5,
		Member: &Member{Place: &Place{Group: "g", Part: "main"}, Replica: 1, Index: 2},
	}
	b, _ := hex.DecodeString(run)
	gotRun, err := decodeRun("r-1", b)
	if diff := cmp.Diff(wantRun, gotRun); err != nil || diff != "" {
		t.Errorf("run: %v\n%s", err, diff)
	}
	if again := hex.EncodeToString(appendRun(nil, gotRun)); again != run {
		t.Errorf("the run is written as %s, want %s", again, run)
	}
	// And they read what is written now: they know neither the flag, nor a retryAfter of a run that has not ended.
	running := *wantRun
	running.Running, running.RunningSince = true, 1_800_000_000_000_000_000
	b = appendRun(nil, &running)
	b[1] &^= 1 << 6
	older := *wantRun
	older.RetryAfter = running.RunningSince
	gotRun, err = decodeRun("r-1", b)
	if diff := cmp.Diff(&older, gotRun); err != nil || diff != "" {
		t.Errorf("a running run, as older programs read it: %v\n%s", err, diff)
	}
	b, _ = hex.DecodeString(job)
	gotJob, err := decodeJob("j", b)
	if diff := cmp.Diff(wantJob, gotJob); err != nil || diff != "" {
		t.Fatalf("job: %v\n%s", err, diff)
	}
	if again := hex.EncodeToString(appendJob(nil, gotJob)); again != job {
		t.Errorf("the job is written as %s, want %s", again, job)
	}
}

func damage(t *rapid.T, b []byte, decode func([]byte) error) {
	t.Helper()
	for n := range b {
		if err := decode(b[:n:n]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("the first %d of %d bytes: %v, want ErrCorrupt", n, len(b), err)
		}
	}
	for _, other := range [][]byte{append(slices.Clip(b), 0), append([]byte{ordered + 1}, b[1:]...)} {
		if err := decode(other); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%x: %v, want ErrCorrupt", other, err)
		}
	}
}

// TestOrderedWithoutOrders: a job without orders is written in version 1 only, so in version 2 it is not what was written.
func TestOrderedWithoutOrders(t *testing.T) {
	b := appendJob(nil, &Job{ID: "j", Queue: "q"})
	b = append([]byte{ordered, 0}, b[1:]...)
	if j, err := decodeJob("j", b); !errors.Is(err, ErrCorrupt) {
		t.Errorf("%x: %+v, %v, want ErrCorrupt", b, j, err)
	}
}

// TestHugeCounts: a length that cannot be true allocates nothing like it.
func TestHugeCounts(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	huge := binary.AppendUvarint(nil, 1<<62)
	prefix := []byte{jobVersion, 0, 0, 0, 0, 0, 0}
	for _, b := range [][]byte{
		append([]byte{jobVersion, 0}, huge...),            // the queue's length
		append(prefix, huge...),                           // number of init containers
		append(append(prefix, 0, 0, 0, 0), huge...),       // number of failed nodes
		append(append(prefix, 0, 0, 0, 0, 0), huge...),    // number of rules
		append(append(prefix, 0, 0, 0, 0, 0), 0x80),       // cut
		append(prefix, bytes.Repeat([]byte{0xff}, 11)...), // a number beyond 64 bits
	} {
		if _, err := decodeJob("j", b); !errors.Is(err, ErrCorrupt) {
			t.Errorf("decodeJob(%x) = %v, want ErrCorrupt", b, err)
		}
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("allocated %d bytes", n)
	}
}

// FuzzDecodeJob: no bytes panic, and what is decoded is what would be written.
func FuzzDecodeJob(f *testing.F) {
	r := &Run{ID: "r", Seen: true, LeasedNode: "n", End: Failed, Outcome: Requeued, RetryAfter: 1e18, ReadyAfter: 1}
	f.Add(appendJob(nil, &Job{}))
	f.Add(appendJob(nil, &Job{
		Known: true, Queue: "q", Set: "s", InitContainers: []string{"a", "b"}, Runs: 1, Latest: r,
		FailedNodes: []string{"n"}, Rules: []RuleCount{{"p", "a", 1, 2}}, EndedAt: -1,
	}))
	f.Fuzz(func(t *testing.T, b []byte) {
		j, err := decodeJob("j", b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("decodeJob: %v, want ErrCorrupt", err)
			}
			return
		}
		again, err := decodeJob("j", appendJob(nil, j))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(j, again); diff != "" {
			t.Fatalf("(-decoded +encoded and decoded again):\n%s", diff)
		}
		_ = j.term()
	})
}

// FuzzDecodeRun: no bytes panic, and a run that decodes survives encoding and decoding.
func FuzzDecodeRun(f *testing.F) {
	f.Add(appendRun(nil, &Run{}))
	f.Add(appendRun(nil, &Run{Seen: true, Index: 3, Leased: true, LeasedNode: "n", RunningNode: strings.Repeat("n", 200), RetryAfter: -1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRun("r", b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("decodeRun: %v, want ErrCorrupt", err)
			}
			return
		}
		again, err := decodeRun("r", appendRun(nil, r))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r, again); diff != "" {
			t.Fatalf("(-decoded +encoded and decoded again):\n%s", diff)
		}
	})
}

// TestKeys: no key of one job, set or term stands among those of another, and
// keys sort as what they are made of.
func TestKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c, d := name.Draw(t, "a"), name.Draw(t, "b"), name.Draw(t, "c"), name.Draw(t, "d")
		x, y := name.Draw(t, "x"), name.Draw(t, "y")
		within := func(key, prefix []byte) bool {
			return string(prefix) <= string(key) && string(key) < string(after(prefix))
		}
		if got := within(append(appendRunPrefix(nil, a), x...), appendRunPrefix(nil, b)); got != (a == b) {
			t.Fatalf("run %q of job %q is among those of job %q: %v", x, a, b, got)
		}
		if got := within(append(appendSetPrefix(nil, a, b), x...), appendSetPrefix(nil, c, d)); got != (a == c && b == d) {
			t.Fatalf("job %q of set %q/%q is among those of %q/%q: %v", x, a, b, c, d, got)
		}
		if got, want := strings.Compare(string(appendRunPrefix(nil, a)), string(appendRunPrefix(nil, b))), strings.Compare(a, b); got != want {
			t.Fatalf("the runs of %q and %q sort %d, want %d", a, b, got, want)
		}
		ta := term{weight: uint8(rapid.IntRange(1, 8).Draw(t, "weight")), base: nanos.Draw(t, "base")}
		tb := term{weight: uint8(rapid.IntRange(1, 8).Draw(t, "weight")), base: nanos.Draw(t, "base")}
		key := appendForgetKey(nil, ta, x)
		if got, job, ok := splitForgetKey(key); got != ta || job != x || !ok {
			t.Fatalf("splitForgetKey = %v, %q, %v; want %v, %q", got, job, ok, ta, x)
		}
		if ta != tb {
			before := ta.weight < tb.weight || ta.weight == tb.weight && ta.base < tb.base
			if got := string(key) < string(appendForgetKey(nil, tb, y)); got != before {
				t.Fatalf("%v sorts before %v: %v", ta, tb, got)
			}
		}
	})
}

package model

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
)

const (
	retry1 = " #1 DefaultRetry all:default"
	after1 = " delay=1000 after=1s pod=armada-j-0-1 global=1/20 job=1/20"
)

// TestWhatIsDecided is §1: which failures are decided.
func TestWhatIsDecided(t *testing.T) {
	p := ml(Settings{}, retryAll())
	playAll(t, []playCase{
		{
			name: "a failure", policies: p,
			messages: []timedMessage{at(0, submit("j")), at(0, leased("j", "r", "n")), at(0, fails("j", "r", podError("")))},
			want:     []string{"2: JobRequeued j/r" + retry1 + " t=0s" + after1},
		},
		{
			name: "all in one message, the submit last", policies: p,
			messages: []timedMessage{at(0, fails("j", "r", podError("")), submit("j"))},
			want:     []string{"0: JobRequeued j/r" + retry1 + " t=0s" + after1},
		},
		{
			name: "before its submit", policies: p,
			messages: []timedMessage{at(0, fails("j", "r", podError(""))), at(1, submit("j")), at(2, fails("j", "s", podError("")))},
			want: []string{
				"0: NotDecided j/r UnknownJob t=0s",
				"2: JobRequeued j/s #1 DefaultRetry all:default t=2s delay=1000 after=3s pod=armada-j-0-2 global=1/20 job=1/20",
			},
		},
		{
			name: "a stale run", policies: p,
			messages: []timedMessage{at(0, submit("j"), leased("j", "r", ""), leased("j", "s", "")), at(0, fails("j", "r", podError(""))), at(0, fails("j", "s", podError("")))},
			want: []string{
				"1: NotDecided j/r StaleRun t=0s",
				"2: JobRequeued j/s #1 DefaultRetry all:default t=0s delay=1000 after=1s pod=armada-j-0-2 global=1/20 job=1/20",
			},
		},
		{
			name: "stale by the same message", policies: p,
			messages: []timedMessage{at(0, submit("j"), fails("j", "r", podError("")), assigned("j", "s"))},
			want:     []string{"0: NotDecided j/r StaleRun t=0s"},
		},
		{
			name: "a proof does not make a run known", policies: p,
			messages: []timedMessage{at(0, submit("j"), fails("j", "r", podError("")), terminated("j", "s"))},
			want:     []string{"0: JobRequeued j/r" + retry1 + " t=0s" + after1},
		},
		{
			name: "runs of two jobs with one id, in order of failure", policies: p,
			messages: []timedMessage{
				at(0, submit("j"), submit("k"), leased("j", "r", ""), leased("k", "r", "")),
				at(0, fails("k", "r", podError("")), fails("j", "r", podError(""))),
			},
			want: []string{
				"1: JobRequeued k/r #1 DefaultRetry all:default t=0s delay=1000 after=1s pod=armada-k-0-1 global=1/20 job=1/20",
				"1: JobRequeued j/r #2 DefaultRetry all:default t=0s" + after1,
			},
		},
		{
			name: "cancelled before and after in one message", policies: p,
			messages: []timedMessage{
				at(0, submit("j"), submit("k"), cancelJob("j")),
				at(0, fails("j", "r", podError("")), fails("k", "r", podError("")), cancelledJob("k")),
			},
			want: []string{"1: NotDecided j/r Cancelled t=0s", "1: NotDecided k/r Cancelled t=0s"},
		},
		{
			name: "cancelled before its submit", policies: p,
			messages: []timedMessage{at(0, cancelJob("j")), at(0, submit("j")), at(0, fails("j", "r", podError("")))},
			want:     []string{"2: NotDecided j/r Cancelled t=0s"},
		},
		{
			name: "a set is cancelled of which the job is not yet one", policies: p,
			messages: []timedMessage{at(0, cancelSet()), at(0, submit("j")), at(0, fails("j", "r", podError("")))},
			want:     []string{"2: JobRequeued j/r" + retry1 + " t=0s" + after1},
		},
		{
			name: "ended", policies: p,
			messages: []timedMessage{
				at(0, submit("j"), jobSucceeded("j"), submit("k"), jobErrors("k", []*pb.Error{rejected()})),
				at(0, fails("j", "r", podError("")), fails("k", "r", podError(""))),
			},
			want: []string{"1: NotDecided j/r Ended t=0s", "1: NotDecided k/r Ended t=0s"},
		},
		{
			name: "the scheduler's verdict does not end", policies: p,
			messages: []timedMessage{at(0, submit("j"), fails("j", "r", podError("")), jobErrors("j", []*pb.Error{transient(rejected()), maxRuns()}))},
			want:     []string{"0: JobRequeued j/r" + retry1 + " t=0s" + after1},
		},
		{
			name: "ended by our own", policies: ml(Settings{}),
			messages: []timedMessage{at(0, submit("j"), fails("j", "r", podError(""))), at(0, fails("j", "s", podError("")))},
			want:     []string{"0: JobFailed j/r #1 NoPolicy t=0s job=0/20", "1: NotDecided j/s Ended t=0s"},
		},
		{
			name: "not by our own in shadow", policies: ml(Settings{Mode: "Shadow"}),
			messages: []timedMessage{at(0, submit("j"), fails("j", "r", podError(""))), at(0, fails("j", "s", podError("")))},
			want:     []string{"0: JobFailed j/r #1 NoPolicy shadow t=0s job=0/20", "1: JobFailed j/s #2 NoPolicy shadow t=0s job=0/20"},
		},
		{
			name: "which reason goes first", policies: p,
			messages: []timedMessage{
				at(0, cancelledJob("j"), leased("j", "r", ""), leased("j", "s", "")), // not submitted
				at(0, fails("j", "r", podError(""))),
				at(0, fails("j", "s", podError(""))),
				at(0, jobSucceeded("k"), fails("k", "r", podError(""))),
			},
			want: []string{"1: NotDecided j/r StaleRun t=0s", "2: NotDecided j/s Cancelled t=0s", "3: NotDecided k/r Ended t=0s"},
		},
	})
}

// TestCancelSet is §1: the states that a CancelJobSet names.
func TestCancelSet(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		states         []pb.JobState
		active, queued bool // whether a job with, and without a run not ended is meant
	}{
		{nil, true, true},
		{[]pb.JobState{pb.JobState_QUEUED}, false, true},
		{[]pb.JobState{pb.JobState_PENDING}, true, false},
		{[]pb.JobState{pb.JobState_RUNNING}, true, false},
		{[]pb.JobState{pb.JobState_RUNNING, pb.JobState_QUEUED}, true, true},
		{[]pb.JobState{9}, false, false},
	} {
		m := New(Policies{})
		m.Step(at(0, submit("active"), leased("active", "r", ""), submit("queued"), succeeded("queued", "r")).message(t, 0))
		m.Step(from("other", "set-a", at(0, submit("elsewhere"))).message(t, 1))
		m.Step(from("ml", "set-b", at(0, submit("beside"))).message(t, 2))
		m.Step(at(0, cancelSet(tc.states...)).message(t, 3))
		if m.jobs["active"].cancelled != tc.active || m.jobs["queued"].cancelled != tc.queued {
			t.Errorf("CancelJobSet %v: active %t, queued %t, want %t, %t", tc.states, m.jobs["active"].cancelled, m.jobs["queued"].cancelled, tc.active, tc.queued)
		}
		if m.jobs["elsewhere"].cancelled || m.jobs["beside"].cancelled {
			t.Errorf("CancelJobSet %v: a job of another queue or set is cancelled", tc.states)
		}
	}
}

// TestEndsOnce is §1: what ends a run, and the preemption tuple.
func TestEndsOnce(t *testing.T) {
	gpu := Rule{Name: "gpu", Action: "Ignore", OnFailureCategory: []string{"gpu"}}
	lost := Rule{Name: "lost", Action: "Ignore", OnConditions: []string{"Preempted"}}
	p := ml(Settings{}, Policy{Name: "p", Rules: []Rule{gpu, lost}})
	gpuThenLost := ml(Settings{}, Policy{Name: "p", Rules: []Rule{lost, gpu}})
	const requeue = " delay=1000 after=6s pod=armada-j-0-1 job=0/20"
	playAll(t, []playCase{
		{
			name: "the preemption first", policies: p,
			messages: []timedMessage{at(9, submit("j"), created(preempted("j", "r"), 5), created(fails("j", "r", category(podError(""), "gpu", "")), 7))},
			want:     []string{"0: JobRequeued j/r #1 RuleIgnore p:gpu t=5s" + requeue}, // grace of a preempted run: 1 s
		},
		{
			name: "the error first", policies: gpuThenLost,
			messages: []timedMessage{at(9, submit("j"), created(fails("j", "r", category(podError(""), "gpu", "")), 5), created(preempted("j", "r"), 7))},
			want:     []string{"0: JobRequeued j/r #1 RuleIgnore p:lost t=5s" + requeue},
		},
		{
			name: "split over messages, the preemption first", policies: p,
			messages: []timedMessage{at(5, submit("j"), preempted("j", "r")), at(7, fails("j", "r", category(preemptedError(), "gpu", "")))},
			want:     []string{"0: JobRequeued j/r #1 RuleIgnore p:lost t=5s" + requeue},
		},
		{
			name: "split over messages, the error first", policies: gpuThenLost,
			messages: []timedMessage{at(5, submit("j"), fails("j", "r", category(podError(""), "gpu", ""))), at(7, preempted("j", "r"))},
			want:     []string{"0: JobRequeued j/r #1 RuleIgnore p:gpu t=5s delay=0 after=5s pod=armada-j-0-1 job=0/20"},
		},
		{
			name: "a returned lease among them stays one", policies: ml(Settings{}),
			messages: []timedMessage{at(5, submit("j"), preempted("j", "r"), fails("j", "r", returned(false)))},
			want:     []string{"0: JobRequeued j/r #1 LeaseReturned t=5s delay=0 after=5s pod=armada-j-0-1 job=0/20"},
		},
		{
			name: "ended well before", policies: p,
			messages: []timedMessage{at(5, submit("j"), succeeded("j", "r"), preempted("j", "r"), fails("j", "r", podError("")))},
			want:     nil,
		},
		{
			name: "re-reported with another category", policies: p,
			messages: []timedMessage{at(5, submit("j"), fails("j", "r", category(podError(""), "gpu", ""))), at(8, fails("j", "r", category(podError(""), "user", "")))},
			want:     []string{"0: JobRequeued j/r #1 RuleIgnore p:gpu t=5s delay=0 after=5s pod=armada-j-0-1 job=0/20"},
		},
		{
			name: "the first terminal error of several", policies: p,
			messages: []timedMessage{at(5, submit("j"), fails("j", "r",
				transient(category(podError(""), "user", "")), category(podError(""), "gpu", ""), category(podError(""), "user", "")))},
			want: []string{"0: JobRequeued j/r #1 RuleIgnore p:gpu t=5s delay=0 after=5s pod=armada-j-0-1 job=0/20"},
		},
		{
			name: "none terminal, and none", policies: p,
			messages: []timedMessage{at(5, submit("j"), fails("j", "r", transient(podError("")))), at(6, fails("j", "r"))},
			want:     nil,
		},
	})
}

// TestTime is §Words: t.
func TestTime(t *testing.T) {
	t.Parallel()
	seconds := func(s int64, n int32) *pb.Event { return &pb.Event{Created: &pb.Timestamp{Seconds: s, Nanos: n}} }
	const minute = 60_000_000_000
	for _, tc := range []struct {
		name string
		ev   *pb.Event
		want int64
	}{
		{"absent", &pb.Event{}, base},
		{"present but zero", &pb.Event{Created: &pb.Timestamp{}}, base - 5*minute},
		{"a minute ago", seconds(base/1e9-60, 5), base - minute + 5},
		{"at the edge", seconds(base/1e9+300, 0), base + 5*minute},
		{"past the edge", seconds(base/1e9+300, 1), base + 5*minute},
		{"hours ago", seconds(base/1e9-7200, 0), base - 5*minute},
		{"negative", seconds(-1, 0), base - 5*minute},
		{"the last second", seconds(1<<63-1, 1<<31-1), base + 5*minute},
		{"the first second", seconds(-1<<63, -1<<31), base - 5*minute},
		{"negative nanoseconds", seconds(base/1e9, -7), base - 7},
	} {
		if got := eventTime(tc.ev, base); got != tc.want {
			t.Errorf("%s: t = %d, want %d", tc.name, got, tc.want)
		}
	}
}

// TestForget is §1: the horizon.
func TestForget(t *testing.T) {
	p := ml(Settings{HorizonMs: new(int64(10_000))}, retryAll())
	mark := func(seconds float64) timedMessage { return at(seconds, &pb.Event{}) } // moves the watermark only
	playAll(t, []playCase{
		{
			name: "ended, at the horizon", policies: p,
			messages: []timedMessage{at(100, submit("j"), jobSucceeded("j")), at(110, fails("j", "r", podError("")))},
			want:     []string{"1: NotDecided j/r Ended t=1m50s"},
		},
		{
			name: "ended, past the horizon", policies: p,
			messages: []timedMessage{at(100, submit("j"), jobSucceeded("j")), at(110.000000001, fails("j", "r", podError("")))},
			want:     []string{"1: NotDecided j/r UnknownJob t=1m50.000000001s"},
		},
		{
			name: "the watermark does not go back, and counts when it ended", policies: p,
			messages: []timedMessage{at(100, &pb.Event{}), at(90, submit("j"), jobSucceeded("j")), at(109, fails("j", "r", podError("")))},
			want:     []string{"2: NotDecided j/r Ended t=1m49s"},
		},
		{
			name: "a parked message does not count, an event of one that is read does", policies: p,
			messages: []timedMessage{
				at(100, submit("j"), jobSucceeded("j")),
				from("", "set-a", at(200, &pb.Event{})),
				at(105, fails("j", "r", podError(""))),
				at(111, jobSucceeded("")),
				at(105, fails("j", "s", podError(""))),
			},
			want: []string{
				"1: Parked no queue", "2: NotDecided j/r Ended t=1m45s",
				"3: Parked event without job event=1", "4: NotDecided j/s UnknownJob t=1m45s",
			},
		},
		{
			name: "what waits for a submit, at the horizon", policies: p,
			messages: []timedMessage{at(100, cancelJob("j")), mark(105), at(108, leased("j", "q", "")), at(110, submit("j"), fails("j", "r", podError("")))},
			want:     []string{"3: NotDecided j/r Cancelled t=1m50s"},
		},
		{
			name: "what waits for a submit, past the horizon", policies: p,
			messages: []timedMessage{at(100, cancelJob("j")), mark(105), at(108, leased("j", "q", "")), at(111, submit("j"), fails("j", "r", podError("")))},
			want:     []string{"3: JobRequeued j/r #1 DefaultRetry all:default t=1m51s delay=1000 after=1m52s pod=armada-j-0-1 global=1/20 job=1/20"},
		},
		{
			name: "a job that lives is not forgotten", policies: p,
			messages: []timedMessage{at(0, submit("j")), at(1e6, fails("j", "r", podError("")))},
			want:     []string{"1: JobRequeued j/r #1 DefaultRetry all:default t=277h46m40s delay=1000 after=277h46m41s pod=armada-j-0-1 global=1/20 job=1/20"},
		},
		{
			name: "the scheduler's verdict without a run, at seven horizons", policies: p,
			messages: []timedMessage{at(100, submit("j"), jobErrors("j", []*pb.Error{maxRuns()})), at(170, fails("j", "r", podError("")))},
			want:     []string{"1: JobRequeued j/r #1 DefaultRetry all:default t=2m50s delay=1000 after=2m51s pod=armada-j-0-1 global=1/20 job=1/20"},
		},
		{
			name: "the scheduler's verdict without a run, past seven horizons", policies: p,
			messages: []timedMessage{at(100, submit("j"), jobErrors("j", []*pb.Error{maxRuns()})), at(170.1, fails("j", "r", podError("")))},
			want:     []string{"1: NotDecided j/r UnknownJob t=2m50.1s"},
		},
		{
			name: "the scheduler's verdict counts from retryAfter", policies: p,
			messages: []timedMessage{at(100, submit("j"), fails("j", "r", podError("")), jobErrors("j", []*pb.Error{maxRuns()})), at(171, fails("j", "s", podError("")))},
			want: []string{
				"0: JobRequeued j/r #1 DefaultRetry all:default t=1m40s delay=1000 after=1m41s pod=armada-j-0-1 global=1/20 job=1/20",
				"1: JobRequeued j/s #2 DefaultRetry all:default t=2m51s delay=1000 after=2m52s pod=armada-j-0-2 global=2/20 job=2/20",
			},
		},
		{
			name: "past that it is forgotten", policies: p,
			messages: []timedMessage{at(100, submit("j"), fails("j", "r", podError("")), jobErrors("j", []*pb.Error{maxRuns()})), at(171.1, fails("j", "s", podError("")))},
			want: []string{
				"0: JobRequeued j/r #1 DefaultRetry all:default t=1m40s delay=1000 after=1m41s pod=armada-j-0-1 global=1/20 job=1/20",
				"1: NotDecided j/s UnknownJob t=2m51.1s",
			},
		},
		{
			name: "not when it ran since", policies: p,
			messages: []timedMessage{
				at(100, submit("j"), leased("j", "r", ""), jobErrors("j", []*pb.Error{maxRuns()})), at(101, leased("j", "s", "")),
				at(1000, fails("j", "s", podError(""))),
			},
			want: []string{"2: JobRequeued j/s #1 DefaultRetry all:default t=16m40s delay=1000 after=16m41s pod=armada-j-0-2 global=1/20 job=1/20"},
		},
	})
}

// TestSubmit is §1: under which queue and set a job is known.
func TestSubmit(t *testing.T) {
	t.Parallel()
	m := New(ml(Settings{}))
	m.Step(at(0, submit("j")).message(t, 0))
	m.Step(from("batch", "set-b", at(0, submit("j", annotationFailFast, "true"))).message(t, 1))
	got := m.Step(from("other", "set-c", at(0, fails("j", "r", podError("")), fails("k", "r", podError("")))).message(t, 2))
	want := []Record{
		{Kind: JobFailed, Ledger: 7, Entry: 2, Batch: -1, Queue: "ml", JobSet: "set-a", JobID: "j", RunID: "r", Number: 1, Code: NoPolicy, T: base, GlobalLimit: 20},
		{Kind: NotDecided, Ledger: 7, Entry: 2, Batch: -1, Queue: "other", JobSet: "set-c", JobID: "k", RunID: "r", T: base, Reason: UnknownJob},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// TestParked is §1: what cannot be read.
func TestParked(t *testing.T) {
	t.Parallel()
	head := raw{}.bytes(1, []byte("ml")).bytes(2, []byte("set-a"))
	succeed := func(job, run string) raw {
		return raw{}.bytes(13, raw{}.bytes(4, []byte(job)).bytes(5, []byte(run)))
	}
	failing := func(text string) raw { // a JobRunErrors whose containers say text
		container := raw{}.bytes(3, []byte(text))
		return raw{}.bytes(14, raw{}.bytes(4, []byte("j")).bytes(5, []byte("r")).bytes(3, raw{}.bytes(8, raw{}.bytes(5, container))))
	}
	badAnnotation := raw{}.bytes(1, raw{}.bytes(14, []byte("j")).bytes(4, raw{}.bytes(5, raw{}.bytes(1, []byte("\xff")).bytes(2, []byte("\xfe")))))
	for _, tc := range []struct {
		name    string
		payload raw
		want    []string
	}{
		{"garbage", raw("\xff\xff"), []string{"Parked message unreadable"}},
		{"nothing", raw{}, []string{"Parked no queue"}},
		{"no queue", raw{}.bytes(2, []byte("s")).bytes(5, nil), []string{"Parked no queue"}},
		{"no job set", raw{}.bytes(1, []byte("q")).bytes(5, nil), []string{"Parked no job set"}},
		{"no events", head, []string{"Parked no events"}},
		{"an empty event", head.bytes(5, nil), nil},
		{"cut off", head.bytes(5, succeed("j", "r"))[:20], []string{"Parked message unreadable"}},
		{"an id is not UTF-8", head.bytes(5, succeed("j\xff", "r")), []string{"Parked message unreadable"}},
		{"a run id is not UTF-8", head.bytes(5, succeed("j", "r\xff")), []string{"Parked message unreadable"}},
		{"the queue is not UTF-8", head.bytes(5, succeed("j", "r")).bytes(1, []byte("\xff")), []string{"Parked message unreadable"}},
		{"a text is not UTF-8", head.bytes(5, failing("\xff")), nil},
		{"an annotation is not UTF-8", head.bytes(5, badAnnotation), nil},
		{"a kind that is not read is not UTF-8", head.bytes(5, raw{}.bytes(26, raw{}.bytes(1, []byte("\xff")))), nil},
		{"the wrong wire type", head.bytes(5, raw{}.varint(13, 1)).varint(5, 3), nil},
		{"a field with number zero", head.bytes(5, nil).bytes(0, nil), []string{"Parked message unreadable"}},
		{"an open group", protowire.AppendTag(head.bytes(5, nil), 9, protowire.StartGroupType), []string{"Parked message unreadable"}},
		{"the last member of a oneof wins", head.bytes(5, append(succeed("", ""), succeed("j", "r")...)), nil},
		{"and is merged when it is the same", head.bytes(5, succeed("j", "").bytes(13, raw{}.bytes(5, []byte("r")))), nil},
		{"an empty id follows, and wins", head.bytes(5, succeed("j", "r").bytes(13, raw{}.bytes(5, nil))), []string{"Parked event without run event=1"}},
		{
			"events without job or run among others",
			head.bytes(5, succeed("", "r")).bytes(5, succeed("j", "")).bytes(5, succeed("j", "r")).bytes(5, raw{}.bytes(5, nil)),
			[]string{"Parked event without job event=1", "Parked event without run event=2", "Parked event without job event=4"},
		},
	} {
		m := New(Policies{})
		var got []string
		for _, r := range m.Step(Message{Publish: base, Payload: tc.payload}) {
			got = append(got, show(r))
			if r.Event == 0 && string(r.Raw) != string(tc.payload) {
				t.Errorf("%s: raw = %q, want the payload", tc.name, r.Raw)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

// TestParkedSiblings: the siblings of a parked event are folded, and the raw
// bytes are the event's.
func TestParkedSiblings(t *testing.T) {
	t.Parallel()
	m := New(Policies{})
	nameless := terminated("j", "")
	got := m.Step(at(0, submit("j"), nameless, fails("j", "r", podError(""))).message(t, 0))
	if len(got) != 2 || got[0].Kind != Parked || got[1].Code != NoPolicy {
		t.Fatalf("records = %+v", got)
	}
	var ev pb.Event
	if err := proto.Unmarshal(got[0].Raw, &ev); err != nil || !proto.Equal(&ev, nameless) {
		t.Errorf("raw = %q, %v, want the event", got[0].Raw, err)
	}
}

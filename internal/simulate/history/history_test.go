package history_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/simulate"
	"github.com/refloat/refloat/internal/simulate/history"
)

var recordings = filepath.Join("..", "..", "..", "testdata", "recordings")

func read(t testing.TB, name string) *history.History {
	t.Helper()
	path := filepath.Join(recordings, name+".jsonl.gz")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	h, err := history.Read(bytes.NewReader(text), path)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// never is a policy set that retries nothing.
func never(t testing.TB) *policyfile.Set {
	t.Helper()
	set, err := policyfile.Parse([]policyfile.File{{Name: "p.yaml", Data: []byte(`
apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: never}
spec: {defaultAction: Fail, rules: []}
---
kind: RetrySettings
spec: {defaultPolicyName: never}
`)}})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestRecordings: a recorded history is a workload for the cluster that it names; the same each time; first runs end
// as recorded.
func TestRecordings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		jobs, nodes int
	}{{"plain", 300, 10}, {"chaos", 176, 10}, {"retried", 160, 10}, {"preempted", 88, 10}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := read(t, c.name)
			w, _ := h.Workload()
			cluster, _ := h.Cluster()
			if len(w.Given) != c.jobs || len(cluster.Nodes) != c.nodes {
				t.Fatalf("%d jobs, %d nodes", len(w.Given), len(cluster.Nodes))
			}
			w, left, err := w.Fitting(cluster)
			if err != nil || len(left) > 0 {
				t.Fatalf("%v do not fit: %v", left, err)
			}
			if err := simulate.Check(cluster, w); err != nil {
				t.Fatal(err)
			}
			simulated := func() *simulate.Result {
				r, err := simulate.Run(t.Context(), simulate.Options{Candidate: simulate.Candidate{Set: never(t)}, Cluster: cluster, Workload: w, Seed: 7})
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			r := simulated()
			first, _ := json.Marshal(r)
			again, _ := json.Marshal(simulated())
			if !bytes.Equal(first, again) {
				t.Errorf("two simulations differ:\n%s\n%s", first, again)
			}
			done, lost := 0, 0
			for i := range w.Given {
				if g := &w.Given[i]; g.Gang == "" && g.Cancelled == 0 && len(g.Runs) > 0 {
					if first := &g.Runs[0]; first.Succeeded {
						done++
					} else if first.Error != nil && first.Error.GetPodLeaseReturned() == nil { // returned leases are retried without a rule
						lost++
					}
				}
			}
			if r.Done+int(r.Preemptions) < done || r.Lost < lost || lost == 0 { // the scheduler may preempt what succeeded
				t.Errorf("%d first runs succeed and %d fail, and there are no retries: %+v", done, lost, r.Tally)
			}
			if r.Jobs != c.jobs || r.Lost == 0 || r.Done+r.Lost+r.Cancelled+r.NotOver != r.Jobs {
				t.Errorf("%+v", r.Tally)
			}
		})
	}
}

// recorded writes a recording; each message is one sequence of a queue, second by second.
func recorded(t testing.TB, begin time.Time, sequences ...[]*pb.Event) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for i, of := range sequences {
		payload, err := proto.Marshal(&pb.EventSequence{Queue: "q", JobSetName: "s", Events: of})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(z, `{"partition":0,"ledger":1,"entry":%d,"publish_time":%q,"payload":%q}`+"\n",
			i, begin.Add(time.Duration(i)*time.Second).Format(time.RFC3339), base64.StdEncoding.EncodeToString(payload))
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func submit(id, cpu string) *pb.Event {
	needs, _ := proto.Marshal(&pb.ResourceRequirements{Requests: map[string]*pb.Quantity{"cpu": {Text: &cpu}}})
	container, _ := proto.Marshal(&pb.Container{Name: "main", Resources: needs})
	return &pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{
		JobId: id, MainObject: &pb.KubernetesMainObject{PodSpec: &pb.PodSpecWithAvoidList{PodSpec: &pb.PodSpec{Containers: [][]byte{container}}}},
	}}}
}

func leased(id, run, node string) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: id, RunId: run, NodeId: node}}}
}

func ended(id, run string) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobRunSucceeded{JobRunSucceeded: &pb.JobRunSucceeded{JobId: id, RunId: run}}}
}

func failed(id, run string, code int32) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: id, RunId: run, Errors: []*pb.Error{{
		Terminal: true, Reason: &pb.Error_PodError{PodError: &pb.PodError{ContainerErrors: []*pb.ContainerError{{ExitCode: code, Message: "it # broke: \"so\"\n- x"}}}},
	}}}}}
}

func cancelled(id string) *pb.Event {
	return &pb.Event{Event: &pb.Event_CancelledJob{CancelledJob: &pb.CancelledJob{JobId: id}}}
}

var begin = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

// TestSmall: a history of which all that is read from it can be seen at once.
func TestSmall(t *testing.T) {
	t.Parallel()
	text := recorded(t, begin,
		[]*pb.Event{submit("a", "2"), submit("b", "3")},
		[]*pb.Event{leased("a", "a1", "n1"), leased("b", "a1", "n1")}, // a run of the same name
		[]*pb.Event{failed("a", "a1", 3)},
		[]*pb.Event{leased("a", "a2", "n2"), submit("c", "0")},
		[]*pb.Event{ended("a", "a2"), cancelled("b"), leased("stranger", "s1", "n3")},
	)
	h, err := history.Read(bytes.NewReader(text), "h.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	w, assumed := h.Workload()
	c, _ := h.Cluster()
	var got strings.Builder
	for _, g := range w.Given {
		fmt.Fprintf(&got, "%s %s %v at %v cancelled %v again %v:", g.ID, g.Where, g.Request, g.Submitted, g.Cancelled, g.RunTime.P50)
		for _, r := range g.Runs {
			fmt.Fprintf(&got, " %v %v %s;", r.After, r.Succeeded, r.Cause)
		}
		got.WriteString("\n")
	}
	for _, n := range c.Nodes {
		fmt.Fprintln(&got, n.Names, n.Resources)
	}
	const want = `a h.jsonl.gz:1 map[cpu:2] at 0s cancelled 0s again 1s: 1s false ExitCode3; 1s true ;
b h.jsonl.gz:1 map[cpu:3] at 0s cancelled 4s again 1s: 3s false ;
c h.jsonl.gz:4 map[cpu:0] at 3s cancelled 0s again 1s:
[n1] map[cpu:5]
[n2] map[cpu:2]
`
	if got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &got, want)
	}
	if !slices.ContainsFunc(assumed, func(s string) bool { return strings.HasPrefix(s, "1 runs of the history are of jobs whose submission") }) {
		t.Errorf("%q", assumed)
	}
	if _, err := h.Fit(); err == nil || !strings.Contains(err.Error(), "1 runs succeeded, and a fit of run times needs 20") {
		t.Errorf("a fit from nothing: %v", err)
	}
}

// many is a history of n jobs, of which every fourth fails on any node, and all on node bad.
func many(t testing.TB, n int) []byte {
	t.Helper()
	var all [][]*pb.Event
	for i := range n {
		id, node := fmt.Sprint("job-", i), fmt.Sprint("n", i%5)
		if i%5 == 0 {
			node = "bad"
		}
		all = append(all, []*pb.Event{submit(id, "1"), leased(id, id+"-1", node)})
		all = append(all, slices.Repeat([][]*pb.Event{{submit(id, "1")}}, i%7)...) // time passes
		if node == "bad" || i%4 == 0 {
			all = append(all, []*pb.Event{failed(id, id+"-1", 5)})
		} else {
			all = append(all, []*pb.Event{ended(id, id+"-1")})
		}
	}
	return recorded(t, begin, all...)
}

// TestFit: chances, times and arrivals of the fit; poison nodes; the file can be read back, and says the same again.
func TestFit(t *testing.T) {
	t.Parallel()
	h, err := history.Read(bytes.NewReader(many(t, 400)), "many")
	if err != nil {
		t.Fatal(err)
	}
	text, err := h.Fit()
	if err != nil {
		t.Fatal(err)
	}
	// 80 runs on the bad node and 80 of the other 320 fail.
	for _, want := range []string{
		`# - {cause: "ExitCode5", nodes: ["bad"], perRun: 1}  # 80 of 80 runs: 0.9542 to 1.0000`,
		"# 160 of 400 runs (0.3532 to 0.4487) that none of the above ended", "perRun: 0.4\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	w, err := simulate.ReadWorkload([]byte(text))
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	c, _ := h.Cluster()
	if err := simulate.Check(c, w); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	k := &w.Kinds[0]
	// Submissions are 5 s apart on average.
	if w.Jobs != 400 || w.JobsPerHour < 650 || w.JobsPerHour > 800 || len(w.Kinds) != 1 || k.Failures[0].Message != "it # broke: \"so\"\n- x" || k.RunTime.P50 < time.Second || k.RunTime.P50 > 7*time.Second {
		t.Errorf("%+v", w)
	}
}

// TestFitAgain: of 100 jobs whose first run failed, each runs again on the same node, where nine of ten fail so again, and then elsewhere,
// where one of ten does. The chance of the first run is apart from those.
func TestFitAgain(t *testing.T) {
	t.Parallel()
	var all [][]*pb.Event
	for i := range 400 {
		id := fmt.Sprint("job-", i)
		all = append(all, []*pb.Event{submit(id, "1")})
		run := func(n int, node string, fails bool) {
			name := fmt.Sprint(id, "-", n)
			all = append(all, []*pb.Event{leased(id, name, node)})
			if fails {
				all = append(all, []*pb.Event{failed(id, name, 5)})
			} else {
				all = append(all, []*pb.Event{ended(id, name)})
			}
		}
		run(1, "n1", i < 100)
		if i < 100 {
			run(2, "n1", i%10 != 0)
		}
		if i < 100 && i%10 != 0 {
			run(3, "n2", i%10 == 1)
		}
	}
	h, err := history.Read(bytes.NewReader(recorded(t, begin, all...)), "again")
	if err != nil {
		t.Fatal(err)
	}
	text, err := h.Fit()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# 100 of 400 runs (0.2101 to 0.2947) that none of the above ended",
		"# again, sameNode, retry 1: 90 of 100 runs (0.8256 to 0.9448)", "# again, otherNode, retry 1: 10 of 90 runs (",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	w, err := simulate.ReadWorkload([]byte(text))
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	want := simulate.Again{SameNode: []float64{0.9}, OtherNode: []float64{0.1111}}
	if f := &w.Kinds[0].Failures[0]; f.PerRun != 0.25 || fmt.Sprint(f.Again) != fmt.Sprint(want) {
		t.Errorf("%+v", f)
	}
}

// TestFitRecordings: the files that are fitted to the recordings can be read back.
func TestFitRecordings(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"plain", "chaos", "retried"} {
		text, err := read(t, name).Fit()
		if err != nil {
			t.Fatal(err)
		}
		c, _ := read(t, name).Cluster()
		w, err := simulate.ReadWorkload([]byte(text))
		if err == nil {
			err = simulate.Check(c, w)
		}
		if err != nil {
			t.Errorf("%s: %v:\n%s", name, err, text)
		}
	}
}

// TestBadInput: each mistake is an error that names file and line.
func TestBadInput(t *testing.T) {
	t.Parallel()
	whole := many(t, 10)
	var plain bytes.Buffer
	z := gzip.NewWriter(&plain)
	fmt.Fprintln(z, `{"partition":0}`)
	_ = z.Close()
	for _, c := range []struct {
		text []byte
		want string
	}{
		{nil, "h.jsonl.gz is not a recording"},
		{[]byte("no gzip"), "h.jsonl.gz is not a recording"},
		{whole[:len(whole)/2], "h.jsonl.gz:"},
		{plain.Bytes(), "h.jsonl.gz:1: \"ledger\" is missing"},
		{recorded(t, begin), "the history holds no submission of a job"},
		{recorded(t, begin, []*pb.Event{ended("a", "b")}), "the history holds no submission of a job"},
		{recorded(t, begin, []*pb.Event{submit("a", "1")}, []*pb.Event{submit("b", "-1")}), `h.jsonl.gz:2: job "b": its request of cpu is "-1"`},
		{recorded(t, begin, []*pb.Event{submit("a", "many")}), `h.jsonl.gz:1: job "a": its request of cpu is "many"`},
	} {
		if _, err := history.Read(bytes.NewReader(c.text), "h.jsonl.gz"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// FuzzRead: no payload makes the reader panic, and what it reads can be checked and fitted.
func FuzzRead(f *testing.F) {
	for _, of := range [][]*pb.Event{{submit("a", "1"), leased("a", "r", "n"), failed("a", "r", 1)}, {submit("a", "1"), ended("a", "r")}, {submit("a", "9e99"), cancelled("a")}} {
		payload, err := proto.Marshal(&pb.EventSequence{Queue: "q", JobSetName: "s", Events: of})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		fmt.Fprintf(z, `{"partition":0,"ledger":1,"entry":1,"publish_time":"2026-11-01T00:00:00Z","payload":%q}`+"\n", base64.StdEncoding.EncodeToString(payload))
		_ = z.Close()
		h, err := history.Read(&b, "h")
		if err != nil {
			return
		}
		w, _ := h.Workload()
		c, _ := h.Cluster()
		if len(c.Nodes) > 0 {
			_ = simulate.Check(c, w)
		}
		_, _ = h.Fit()
	})
}

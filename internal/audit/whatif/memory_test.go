package whatif_test

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/whatif"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
)

// TestMemory measures the memory that Verify and Run need, over logs on disk of as many
// events as each number in the variable EVENTS says: what is live on the heap after every
// 1024 messages, at most, and the resident memory of refloatctl, at most, in a process of
// its own. The jobs of a horizon are the same number in all of them, and what is live may
// differ by 10 %.
func TestMemory(t *testing.T) {
	sizes := strings.Fields(os.Getenv("EVENTS"))
	if len(sizes) == 0 {
		t.Skip("EVENTS is not set")
	}
	program := filepath.Join(t.TempDir(), "refloatctl")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../../cmd/refloatctl").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var text bytes.Buffer
	out := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "EVENTS\tMESSAGES\tON DISK\tWHAT\tLIVE, AT MOST\tMEDIAN\tTIMES\tRESIDENT, AT MOST\tCPU TIME")
	lowest, highest := map[string]uint64{}, map[string]uint64{}
	for _, size := range sizes {
		n, err := strconv.Atoi(size)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		logs, messages := onDisk(t, dir, n)
		onDisk := sizeOf(t, dir)
		for _, w := range []struct {
			name string
			do   func(each func(messages uint64)) error
			args []string
		}{
			{"verify", func(each func(uint64)) error {
				_, err := audit.VerifyRange(t.Context(), logs, 0, audit.Options{Progress: func(v *audit.Verified) { each(v.Messages) }})
				return err
			}, nil},
			{"whatif", func(each func(uint64)) error {
				_, err := whatif.Run(t.Context(), logs, whatif.Options{
					Candidates: []whatif.Candidate{{Name: "one", Set: limited(t, 1)}}, Limit: 20, Progress: func(_ int, n uint64) { each(n) },
				})
				return err
			}, []string{"--set", "policies.infra.rules[oom].retryLimit=1"}},
		} {
			live := liveHeap(t, w.do)
			peak := live[len(live)-1]
			lowest[w.name], highest[w.name] = min(cmp.Or(lowest[w.name], peak), peak), max(highest[w.name], peak)
			resident, took := run(t, program, append([]string{w.name, "--log", filepath.Join(dir, "events"), "--decisions", filepath.Join(dir, "decisions")}, w.args...)...)
			fmt.Fprintf(out, "%d\t%d\t%d MB\t%s\t%.1f MB\t%.1f MB\t%d\t%.1f MB\t%.1f s\n",
				n, messages, onDisk/1e6, w.name, float64(peak)/1e6, float64(live[len(live)/2])/1e6, len(live), float64(resident)/1e6, took.Seconds())
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	_ = out.Flush()
	t.Log("\n" + text.String())
	for name, peak := range highest {
		if float64(peak) > 1.1*float64(lowest[name]) {
			t.Errorf("%s: the peaks are %d to %d bytes, which differ by more than 10 %%", name, lowest[name], peak)
		}
	}
}

// liveHeap does something that calls each with the number of messages so far, and returns
// what is live on the heap after every 1024 messages, sorted. The caller of runtime.GC
// allocates nothing meanwhile, so nothing is counted that is already garbage.
func liveHeap(t *testing.T, do func(each func(messages uint64)) error) (live []uint64) {
	t.Helper()
	done := uint64(0)
	err := do(func(messages uint64) {
		if messages < done+1024 {
			return
		}
		done = messages
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		live = append(live, stats.HeapAlloc)
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(live) < 10 {
		t.Fatalf("%d times 1024 messages: too few events", len(live))
	}
	slices.Sort(live)
	return live
}

// run runs a program, and returns its maximum resident memory in bytes, as /proc shows it
// (that of Wait includes this process), and its CPU time.
func run(t *testing.T, program string, args ...string) (resident int64, took time.Duration) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	var logged bytes.Buffer
	cmd.Stdout, cmd.Stderr = &logged, &logged
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		select {
		case <-tick.C:
			status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
			if _, after, ok := bytes.Cut(status, []byte("VmHWM:")); ok {
				var kB int64
				if _, err := fmt.Sscan(string(after), &kB); err != nil {
					t.Fatal(err)
				}
				resident = max(resident, kB<<10)
			}
		case err := <-ended:
			tick.Stop()
			if err != nil && cmd.ProcessState.ExitCode() != 1 {
				t.Fatalf("%v: %v\n%s", args, err, logged.Bytes())
			}
			return resident, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		}
	}
}

func sizeOf(t *testing.T, dir string) (size int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// onDisk is the log of a deployment with one partition and at least n events, a message
// every five seconds: of jobs as in story, one after another.
func onDisk(t *testing.T, dir string, n int) (logs audit.Logs, messages int) {
	t.Helper()
	var clock atomic.Int64 // Unix seconds
	clock.Store(1_800_000_000)
	open := func(name string) *filelog.Log {
		log, err := filelog.Open(filelog.Config{
			FS: vfs.Default, Dir: filepath.Join(dir, name), Partitions: 1, Now: func() time.Time { return time.Unix(clock.Load(), 0) },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = log.Close() })
		return log
	}
	input, decisions, policies := open("events"), open("decisions"), open("policies")
	messages = publish(t, input, n, &clock)
	set := limited(t, 5)
	proposal, err := policylog.Encode(&policylog.Proposal{Set: set, Author: "test"})
	if err != nil {
		t.Fatal(err)
	}
	put(t, policies, proposal)
	decide(t, input, decisions, set)
	return audit.Logs{Events: input, Decisions: decisions, Policies: policies}, messages
}

func put(t *testing.T, log *filelog.Log, payloads ...[]byte) {
	t.Helper()
	var msgs []eventlog.Message
	for _, payload := range payloads {
		msgs = append(msgs, eventlog.Message{Payload: payload})
	}
	if err := log.AppendSync(t.Context(), 0, msgs); err != nil {
		t.Fatal(err)
	}
}

// publish writes the events, and returns the number of messages.
func publish(t *testing.T, log *filelog.Log, n int, clock *atomic.Int64) (messages int) {
	t.Helper()
	var payloads [][]byte
	for j, published := 0, 0; published < n; j++ {
		for _, evs := range storyOf(j, j%5) {
			for _, ev := range evs {
				ev.Created = &pb.Timestamp{Seconds: clock.Load()}
			}
			clock.Add(5)
			payload, err := proto.Marshal(&pb.EventSequence{Queue: "ml", JobSetName: "set", Events: evs})
			if err != nil {
				t.Fatal(err)
			}
			payloads, published, messages = append(payloads, payload), published+len(evs), messages+1
		}
		if len(payloads) >= 1024 {
			put(t, log, payloads...)
			payloads = payloads[:0]
		}
	}
	put(t, log, payloads...)
	return messages
}

// storyOf is a job of story that runs out of memory a number of times.
func storyOf(j, failures int) (messages [][]*pb.Event) {
	job := fmt.Sprint("job", j)
	messages = append(messages, []*pb.Event{{Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{JobId: job}}}})
	for k := range failures + 1 {
		run := fmt.Sprint(job, "-", k)
		messages = append(messages, []*pb.Event{
			{Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: job, RunId: run, NodeId: "n"}}},
			{Event: &pb.Event_JobRunRunning{JobRunRunning: &pb.JobRunRunning{JobId: job, RunId: run}}},
		})
		if k < failures {
			messages = append(messages, []*pb.Event{{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: job, RunId: run, Errors: []*pb.Error{{
				Terminal: true, Reason: &pb.Error_PodError{PodError: &pb.PodError{KubernetesReason: pb.KubernetesReason_OOM}},
			}}}}}})
			continue
		}
		messages = append(messages, []*pb.Event{
			{Event: &pb.Event_JobRunSucceeded{JobRunSucceeded: &pb.JobRunSucceeded{JobId: job, RunId: run}}},
			{Event: &pb.Event_JobSucceeded{JobSucceeded: &pb.JobSucceeded{JobId: job}}},
		})
	}
	return messages
}

// decide writes the decision log of a policy set, 256 messages an envelope.
func decide(t *testing.T, input, decisions *filelog.Log, set *policyfile.Set) {
	t.Helper()
	r, err := audit.NewReplayer()
	if err != nil {
		t.Fatal(err)
	}
	end := chain.Beginning
	envelope := func(e *chain.Envelope) {
		e.Seq, e.Link, e.InFrom, e.Epoch, e.Owner = end.Seq+1, end.Link, end.InTo, 1, chain.OwnerID{1}
		if e.InCount == 0 {
			e.InTo = e.InFrom
		}
		raw := e.Append(nil)
		end = chain.End{Seq: e.Seq, Link: chain.Link(raw), InTo: e.InTo}
		put(t, decisions, raw)
	}
	envelope(&chain.Envelope{Records: [][]byte{chain.AppendRecord(nil, &chain.OwnerClaim{Epoch: 1, Owner: chain.OwnerID{1}})}})
	front := []chain.Record{
		&chain.SemanticsActivated{Version: evaluator.SemanticsVersion},
		&chain.PolicyActivated{Generation: 1, Digest: set.Digest(), HorizonMS: set.Horizon().Milliseconds()},
	}
	r.Activate(front)
	r.Rules = evaluator.Rules{Generation: 1, Set: set.Set}
	envelope(&chain.Envelope{Records: [][]byte{chain.AppendRecord(nil, front[0]), chain.AppendRecord(nil, front[1])}})
	events, err := input.Open(0, eventlog.Start)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = events.Close() }()
	for chunk := make([]eventlog.Message, 256); ; {
		n, err := events.Read(chunk)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return
		}
		e := &chain.Envelope{InTo: chunk[n-1].Position, InCount: uint64(n)}
		for i := range chunk[:n] {
			out, err := r.Step(&chunk[i])
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range out.Bytes {
				e.Records = append(e.Records, bytes.Clone(b))
			}
		}
		envelope(e)
		if err := r.Settle(); err != nil {
			t.Fatal(err)
		}
	}
}

package bench_test

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/projection"
)

// What a process with --memory 512MiB, the default, has for the one partition that it owns.
const (
	cacheBytes    = 512 << 20 / 5
	memTableBytes = 16 << 20
	cachedJobs    = 512 << 20 / 12 / 1024 / 2
)

const (
	setJobs     = 500 // jobs of one job set
	fewJobs     = 10_000
	lapsInATurn = 5
)

// alwaysRetry lets no job end by its failures, and remembers those that succeeded for a few laps.
const alwaysRetry = `kind: RetrySettings
spec: {enabled: true, mode: Enforce, horizon: 10m, globalMaxRetries: 1000000, defaultPolicyName: always}
---
apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: always}
spec:
  rules:
  - {name: evicted, action: Retry, onConditions: [Evicted]}
`

// service is an evaluator of one partition on logs of files. Many jobs live in it: half of them are queued, and the
// others run.
type service struct {
	tb                          testing.TB
	dir                         string
	events, decisions, policies *filelog.Log
	store                       *projection.Store
	owner                       *evaluator.Owner
	closers                     []func() error

	jobs, active, fresh, laps int
	now                       time.Time
	messages                  int64
	pending                   []eventlog.Message
}

func newService(tb testing.TB, jobs, active int) *service {
	tb.Helper()
	s := &service{tb: tb, dir: tb.TempDir(), jobs: jobs, active: active, now: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)}
	s.events, s.decisions, s.policies = s.log("events"), s.log("decisions"), s.log("policies")
	set, err := policyfile.Parse([]policyfile.File{{Name: "always.yaml", Data: []byte(alwaysRetry)}})
	s.must(err)
	payload, err := policylog.Encode(&policylog.Proposal{Set: set, Author: "bench", Time: 1})
	s.must(err)
	s.must(s.policies.AppendSync(tb.Context(), 0, []eventlog.Message{{Payload: payload}}))
	s.start()
	tb.Cleanup(s.stop)
	for first := 0; first < jobs; first += setJobs {
		s.submitSet(first)
		if len(s.pending) >= 100 {
			s.drain()
		}
	}
	s.drain()
	return s
}

func (s *service) log(name string) *filelog.Log {
	log, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: filepath.Join(s.dir, name), Partitions: 1, Codec: filelog.CodecS2})
	s.must(err)
	s.tb.Cleanup(func() { _ = log.Close() })
	return log
}

func (s *service) must(err error) {
	s.tb.Helper()
	if err != nil {
		s.tb.Fatal(err)
	}
}

// start opens the state and begins a life of an owner.
func (s *service) start() {
	s.tb.Helper()
	cache := pebble.NewCache(cacheBytes)
	defer cache.Unref()
	var err error
	s.store, err = projection.OpenStore(projection.StoreConfig{
		FS: vfs.Default, Dir: s.state(), Cache: cache, MemTableBytes: memTableBytes, Logger: quiet{},
	})
	s.must(err)
	policies, err := policylog.Open(s.policies)
	s.must(err)
	pub := s.decisions.Publisher(0)
	s.owner = evaluator.NewOwner(evaluator.Config{
		Store: s.store, Events: s.events, Decisions: s.decisions, Policies: policies, Publisher: pub, Random: rand.NewChaCha8([32]byte{1}),
		CacheJobs: func() int { return cachedJobs }, AcceptEmptyDecisions: true,
	})
	s.closers = []func() error{s.owner.Close, pub.Close, policies.Close, s.store.Close}
}

func (s *service) stop() {
	for _, closes := range s.closers {
		s.must(closes())
	}
	s.closers = nil
}

func (s *service) state() string { return filepath.Join(s.dir, "state") }

// restart ends the owner's life, and returns how long the next one takes to the decision on a failure.
func (s *service) restart() time.Duration {
	s.stop()
	s.say(0, failed(s.job(0), runOf(s.job(0), -1)))
	s.append()
	began := time.Now()
	s.start()
	s.decide()
	return time.Since(began)
}

// drain appends what is pending, and advances the owner until it has decided and committed everything.
func (s *service) drain() {
	s.append()
	s.decide()
}

func (s *service) append() {
	s.tb.Helper()
	s.must(s.events.AppendSync(s.tb.Context(), 0, s.pending))
	clear(s.pending)
	s.pending = s.pending[:0]
}

func (s *service) decide() {
	s.tb.Helper()
	end, err := s.events.End(0)
	s.must(err)
	for s.owner.Positions().Chain.InTo != end {
		progress, err := s.owner.Advance(time.Now().UnixNano())
		s.must(err)
		if progress {
			continue
		}
		changed := s.owner.Changed()
		select {
		case <-changed[0]:
		case <-changed[1]:
		case <-changed[2]:
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// say adds a message of a job set, of jobs that were submitted together.
func (s *service) say(set int, events ...*pb.Event) {
	s.now = s.now.Add(10 * time.Millisecond)
	for _, ev := range events {
		ev.Created = &pb.Timestamp{Seconds: s.now.Unix(), Nanos: int32(s.now.Nanosecond())}
	}
	q := simulatedQueues[set%len(simulatedQueues)]
	name := fmt.Sprintf("%s-%d", q[1], set)
	payload, err := proto.Marshal(&pb.EventSequence{Queue: q[0], JobSetName: name, Events: events})
	s.must(err)
	s.messages++
	at := eventlog.Origin{Recording: "live", Position: eventlog.Position{Ledger: 1, Entry: s.messages, Batch: -1}, Publish: s.now.UnixNano()}
	s.pending = append(s.pending, eventlog.Message{Key: name, Payload: payload, Origin: at})
}

// submitSet submits a job set, and leases every second job of it.
func (s *service) submitSet(first int) {
	var submits, leases []*pb.Event
	for n := first; n < min(first+setJobs, s.jobs); n++ {
		submits = append(submits, submitted(s.job(n)))
		if n%2 == 1 {
			leases = append(leases, leased(s.job(n), runOf(s.job(n), 0)))
		}
	}
	s.say(first/setJobs, submits...)
	s.say(first/setJobs, leases...)
}

// lap is what happens while time goes on: the active jobs, spread over all of them, run again and fail, and a quarter
// as many jobs come, succeed, and are forgotten when their horizon has passed. So many jobs live after it as before.
func (s *service) lap() {
	s.laps++
	for i := range s.active {
		n := i * (s.jobs / s.active)
		id := s.job(n)
		run := runOf(id, s.laps)
		s.say(n/setJobs, leased(id, run))
		s.say(n/setJobs, failed(id, run))
		if i%4 == 0 {
			s.comeAndGo()
		}
	}
}

func (s *service) comeAndGo() {
	n := s.jobs + s.fresh
	s.fresh++
	id, set := s.job(n), n/setJobs
	run := runOf(id, 0)
	s.say(set, submitted(id))
	s.say(set, leased(id, run))
	s.say(set, &pb.Event{Event: &pb.Event_JobRunSucceeded{JobRunSucceeded: &pb.JobRunSucceeded{JobId: id, RunId: run}}})
	s.say(set, &pb.Event{Event: &pb.Event_JobSucceeded{JobSucceeded: &pb.JobSucceeded{JobId: id}}})
}

// job is the n-th job's id, which is a ULID as Armada makes them: the time, and what is random.
func (s *service) job(n int) string {
	const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	id := [26]byte{0: '0', 1: '1'}
	for i, v := 9, n; i > 1; i-- {
		id[i], v = alphabet[v&31], v>>5
	}
	r := rand.NewPCG(uint64(n), 1)
	for i, v := 10, uint64(0); i < len(id); i++ {
		if i == 10 || i == 18 {
			v = r.Uint64()
		}
		id[i], v = alphabet[v&31], v>>5
	}
	return string(id[:])
}

// runOf is the id of a job's i-th run, which is random.
func runOf(job string, i int) string {
	var seed [32]byte
	copy(seed[:], job)
	binary.LittleEndian.PutUint32(seed[28:], uint32(i))
	var b [16]byte
	_, _ = rand.NewChaCha8(seed).Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func submitted(job string) *pb.Event {
	return &pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{JobId: job}}}
}

func leased(job, run string) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: job, RunId: run, NodeId: node(run)}}}
}

func failed(job, run string) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: job, RunId: run, Errors: []*pb.Error{{
		Terminal: true, Reason: &pb.Error_PodError{PodError: &pb.PodError{
			Message: "the node was low on resource: memory", NodeName: node(run), KubernetesReason: pb.KubernetesReason_EVICTED,
		}},
	}}}}}
}

// node is one of sixteen.
func node(run string) string { return "ip-10-0-3-" + run[:1] + ".eu-west-1.compute.internal" }

// size returns what a directory takes on the disk: its files of tables, and all of it.
func (s *service) size() (tables, all int64) {
	s.must(filepath.WalkDir(s.state(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		allocated := info.Sys().(*syscall.Stat_t).Blocks * 512
		all += allocated
		if filepath.Ext(path) == ".sst" {
			tables += allocated
		}
		return nil
	}))
	return tables, all
}

// BenchmarkLiveJobs compares the CPU time that an event takes an evaluator on logs of files beside LIVE (10⁶) live jobs
// with that beside 10⁴, of which 10⁴ are active in both: ratio is how many times as long it takes. It also reports the
// state's bytes for each live job, and the time from a restart to the first decision.
func BenchmarkLiveJobs(b *testing.B) {
	live, err := strconv.Atoi(os.Getenv("LIVE"))
	if err != nil {
		live = 1_000_000
	}
	oneCore(b)
	few, many := newService(b, fewJobs, fewJobs), newService(b, live, fewJobs)
	restart := many.restart()
	tables, all := many.size()
	b.Logf("%d live jobs: %d bytes of tables, %d bytes beside; %v from a restart to a decision", live, tables, all-tables, restart)
	took := func(s *service) (sum float64) {
		for range lapsInATurn {
			s.lap()
			s.append()
			runtime.GC()
			before := cpuTime()
			s.decide()
			sum += float64(cpuTime() - before)
		}
		return sum
	}
	var of, each []float64
	took(few)
	took(many)
	pair := func() {
		x, y := 0.0, 0.0
		if len(of)%2 == 0 {
			x, y = took(few), took(many)
		} else {
			y, x = took(many), took(few)
		}
		of, each = append(of, y/x), append(each, y/(lapsInATurn*3*fewJobs))
	}
	for b.Loop() {
		pair()
	}
	for len(of) < minPairs {
		pair()
	}
	low, high := interval(of)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(of), "ratio")
	b.ReportMetric(low, "ratio-low")
	b.ReportMetric(high, "ratio-high")
	b.ReportMetric(median(each), "ns/event")
	b.ReportMetric(float64(tables)/float64(live), "B/job")
	b.ReportMetric(float64(all-tables)/1e6, "MB-beside")
	b.ReportMetric(restart.Seconds(), "restart-s")
	tables, all = many.size()
	b.Logf("after %d laps: %d bytes of tables, %d bytes beside; ratio %.2f (95 %%: %.2f to %.2f)", many.laps, tables, all-tables, median(of), low, high)
}

// TestLiveJobs: BenchmarkLiveJobs measures what it says.
func TestLiveJobs(t *testing.T) {
	t.Parallel()
	const jobs, active, laps = 2000, 400, 4
	s := newService(t, jobs, active)
	for range laps {
		s.lap()
		s.now = s.now.Add(5 * time.Minute)
		s.drain()
	}
	s.restart()
	if got, want := s.owner.Progress().Decisions, uint64(laps*active+1); got != want {
		t.Errorf("%d decisions, want %d", got, want)
	}
	kept, ended := 0, 0
	s.must(s.store.Scan([]byte{'j'}, []byte{'j' + 1}, func([]byte, []byte) bool { kept++; return true }))
	s.must(s.store.Scan([]byte{'x'}, []byte{'x' + 1}, func([]byte, []byte) bool { ended++; return true }))
	if kept-ended != jobs || ended < active/4 || ended > 3*active/4 {
		t.Errorf("%d jobs are kept, of which %d ended; want %d live ones, and those that ended in the last laps", kept, ended, jobs)
	}
}

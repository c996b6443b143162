package model

import (
	"math"
	"math/big"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
)

// Model is one partition: the state derived from its messages so far.
type Model struct {
	// Seen counts occurrences by name, for tests that check what a generator covers.
	Seen map[string]int

	policies  Policies
	version   int    // of the semantics
	watermark *int64 // the greatest t folded; nil: nothing was folded yet
	messages  int    // messages so far, the current one included
	events    int    // events so far, the current one included
	number    int64  // decisions so far
	jobs      map[string]*job
	orders    []order  // of the current message
	failed    []*run   // of the current message, in order of failure
	before    int      // number of the last event before the current message
	records   []Record // by the current message, so far
	current   Message
	recheck   bool // the policies changed
	budgets   []*account
	divided   int      // partitions of events, among which floors are divided; 0: unknown
	groups    []*group // by queue, job set and name

	without []feature // for tests that ask what a feature changes
}

// job is what is kept about a job id, known (SubmitJob seen) or not.
type job struct {
	id        string
	known     bool
	firstKept int64 // the watermark when something was first kept for it

	// Of its SubmitJob.
	queue, set  string
	annotations map[string]string
	initNames   []string
	grace       int64 // seconds, as submitted

	member *member // nil: in no group

	cancelled bool // cancelled or asked to be
	rejected  bool
	ended     bool
	succeeded bool  // ended by nothing but a JobSucceeded
	endedAt   int64 // the watermark when it ended

	verdict    bool // the scheduler's terminal verdict was seen,
	verdictRun int  // when so many runs were known,
	verdictAt  int64

	runs      []*run // in the order in which they became known: the last is the latest
	failures  []*run // in order of failure
	decisions []decision
	answered  []string       // ids of orders
	anew      int            // so many decisions were made when its counts started anew (semantics.md 12.6)
	proofs    map[string]int // run id to the number of the event that first proved its pod gone (§8)
}

// run is one attempt of a job.
type run struct {
	job   *job
	id    string
	index int // §Words: the number of run ids of that job seen before it

	running     bool    // a JobRunRunning came before its end, and after the SubmitJob of a member
	runningNode string  // of its last JobRunRunning that names one
	leasedNode  *string // of its first JobRunLeased
	since       *int64  // t of its first JobRunRunning

	ended   bool
	well    bool     // by a JobRunSucceeded
	failure *failure // nil: not ended, or ended well
	decided bool     // or left undecided
	node    string   // fixed when the failure is decided

	denied     bool  // decided as JobFailed
	requeued   bool  // decided as JobRequeued,
	retryAfter int64 // with this,
	readyAfter int64 // which is this without the grace (§8)
	unpaused   int64 // and this without the pause, of what a policy grants
	readySent  bool
}

// failure is how a run ended, if not well.
type failure struct {
	message   int // number of the message
	t         int64
	err       *pb.Error // nil: only a JobRunPreempted
	preempted bool      // a JobRunPreempted for this run
}

// decision is a decision made for a job, for the counting of later ones.
type decision struct {
	code            string
	rule            string // identity of the rule (§5)
	granted         bool   // a retry that counts
	ignored         bool   // a retry by Ignore
	attemptedReturn bool   // its failure was a returned lease of an attempted run (§9)
}

// NewestVersion is the newest version of the semantics.
const NewestVersion = BudgetsVersion

// GroupsVersion is the version of the semantics in which there are groups (semantics.md 12).
const GroupsVersion = 3

// SuccessorsVersion is the version in which a pause fails nothing, a restart may be blocking, and
// a name whose group has ended begins a new group.
const SuccessorsVersion = 4

// BudgetsVersion is the version in which there are retry budgets (semantics.md 14).
const BudgetsVersion = 5

// BreakersVersion is the version in which open breakers hold retries (semantics.md 15).
const BreakersVersion = 5

// OrdersVersion is the version in which operators order what becomes of a job (semantics.md 16).
const OrdersVersion = 5

// feature is something that SuccessorsVersion adds.
type feature int

const (
	askPaused    feature = iota // semantics.md 12.5 is asked under a pause
	blocking                    // restartStrategy
	successors                  // of groups that have ended
	gangReady                   // proof does not let a member start before its gang
	proof                       // a failure may prove that its pod is over
	dueAgain                    // a group that came due does so again under a longer horizon
	successRules                // and success and afterReady
	runDurations                // of runs that begin to run
	rulesFirst                  // of the unit failures of one message, the rules decide
)

// has says whether a feature is in force.
func (m *Model) has(f feature) bool {
	return m.version >= SuccessorsVersion && !slices.Contains(m.without, f)
}

// New returns a partition without history under a policy set, decided by version 1
// of the semantics.
func New(p Policies) *Model {
	return &Model{Seen: map[string]int{}, policies: p, version: 1, jobs: map[string]*job{}}
}

// UseVersion changes the version of the semantics, between messages.
func (m *Model) UseVersion(version int) {
	// READING: the generation is activated again when its budgets begin. (Otherwise: they begin with the next one.)
	m.recheck = m.recheck || m.version < BudgetsVersion && version >= BudgetsVersion && len(m.policies.Budgets) > 0
	m.version = version
	m.useBudgets()
}

// Use changes the policy set, between messages. Counts stay.
func (m *Model) Use(p Policies) {
	m.policies, m.recheck = p, true
	m.useBudgets()
}

// Step processes the next message and returns its records, in this order:
// Parked in event order, one per run that failed in order of failure, and
// the answers to orders, and RetryReady in order of the events that proved.
func (m *Model) Step(msg Message) []Record {
	m.messages++
	m.records, m.current = nil, msg

	// §1: "A message is read by proto3's rules". The generated code checks
	// UTF-8 where, and only where, the section says.
	var seq pb.EventSequence
	err := proto.Unmarshal(msg.Payload, &seq)
	// READING: of several things that a message lacks, the first in this order
	// is the reason. (Otherwise: any order.)
	switch {
	case err != nil:
		return []Record{m.park(msg, Unreadable, 0, msg.Payload)}
	case seq.Queue == "":
		return []Record{m.park(msg, NoQueue, 0, msg.Payload)}
	case seq.JobSetName == "":
		return []Record{m.park(msg, NoJobSet, 0, msg.Payload)}
	case len(seq.Events) == 0:
		return []Record{m.park(msg, NoEvents, 0, msg.Payload)}
	}

	// §1: "The partition's watermark is the greatest t folded", every event of
	// a readable message counting, whatever its kind.
	for _, ev := range seq.Events {
		t := eventTime(ev, msg.Publish)
		if m.watermark == nil || t > *m.watermark {
			m.watermark = &t
		}
	}
	// §1: forgotten "before the first message after which watermark > …".
	m.forget()

	// §1: "Events are folded in log order, and within a message in their order".
	raws := rawEvents(msg.Payload)
	m.failed, m.orders, m.before = nil, nil, m.events
	for i, ev := range seq.Events {
		m.events++
		if reason := m.fold(&seq, ev, eventTime(ev, msg.Publish)); reason != "" {
			// READING: the raw bytes are those of the event. (Otherwise: of the
			// whole message.)
			m.record(m.park(msg, reason, i+1, raws[i]))
		}
	}

	// §2: a node is "fixed when the failure is decided".
	// READING: of a failure that is not decided, at the same moment.
	for _, r := range m.failed {
		r.node = nodeOf(r)
	}
	// §1: "After a message is folded, each run that failed in it is decided, in
	// order of failure, unless …".
	m.markUnits() // semantics.md 12.3
	for i := range m.failed {
		m.byRules(i)
		r := m.failed[i]
		rec := Record{
			Ledger: msg.Ledger, Entry: msg.Entry, Batch: msg.Batch,
			Queue: r.job.queue, JobSet: r.job.set, JobID: r.job.id, RunID: r.id,
			T: r.failure.t,
		}
		if reason := notDecided(r); reason != "" {
			if !r.job.known {
				// READING: a job that is not known has the queue and set of the
				// message. (Otherwise: none.)
				rec.Queue, rec.JobSet = seq.Queue, seq.JobSetName
			}
			rec.Kind, rec.Reason = NotDecided, reason
			m.Seen["not decided: "+reason]++
			m.record(rec)
			r.decided = true
			continue
		}
		m.number++
		rec.Number = m.number
		if r.job.member != nil {
			m.decideMember(r, rec)
		} else {
			m.record(m.decide(r, rec))
		}
		r.decided = true
	}
	m.recheckRefused()
	m.endUnits()
	m.release()
	m.endGroups()
	m.forgetMute()
	m.answerOrders(&seq, msg)
	return append(m.records, m.ready(msg)...)
}

// record adds a record to those of the current message.
func (m *Model) record(rec Record) { m.records = append(m.records, rec) }

func (m *Model) park(msg Message, reason string, event int, raw []byte) Record {
	m.Seen["parked: "+reason]++
	return Record{
		Kind: Parked, Ledger: msg.Ledger, Entry: msg.Entry, Batch: msg.Batch,
		Reason: reason, Event: event, Raw: slices.Clone(raw),
	}
}

// eventTime is t (§Words): "the event's created (the message's publish time
// when absent), held within five minutes of the publish time".
func eventTime(ev *pb.Event, publish int64) int64 {
	if ev.Created == nil {
		return publish
	}
	t := big.NewInt(ev.Created.Seconds)
	t.Mul(t, big.NewInt(1_000_000_000))
	t.Add(t, big.NewInt(int64(ev.Created.Nanos)))
	const fiveMinutes = 5 * 60 * 1_000_000_000
	if low := big.NewInt(publish - fiveMinutes); t.Cmp(low) < 0 {
		t = low
	}
	if high := big.NewInt(publish + fiveMinutes); t.Cmp(high) > 0 {
		t = high
	}
	return t.Int64()
}

// rawEvents returns the bytes of the events of a payload that was read.
func rawEvents(payload []byte) [][]byte {
	var raws [][]byte
	for len(payload) > 0 {
		number, kind, n := protowire.ConsumeTag(payload)
		size := protowire.ConsumeFieldValue(number, kind, payload[n:])
		if number == 5 && kind == protowire.BytesType {
			raw, _ := protowire.ConsumeBytes(payload[n:])
			raws = append(raws, raw)
		}
		payload = payload[n+size:]
	}
	return raws
}

// notDecided gives the first reason (§1) for which a failed run is not decided.
func notDecided(r *run) string {
	j := r.job
	switch {
	case j.runs[len(j.runs)-1] != r:
		return StaleRun
	case j.cancelled:
		return Cancelled
	case j.ended, j.member != nil && j.member.over == succeededWell:
		return Ended
	case !j.known:
		return UnknownJob
	}
	return ""
}

// ready gives the RetryReady records of a message (§8): "On proof, while the
// job lives and no newer run is known, one RetryReady … is published, if that
// is earlier than before".
// READING: whether the job lives and the run is the latest is asked after the
// message is folded and its failures decided. (Otherwise: at the proof's event.)
// READING: runs that were proved gone before this message, and are decided in
// it, come first, in order of failure. (Otherwise: in order of their proofs.)
func (m *Model) ready(msg Message) []Record {
	var runs []*run
	for _, j := range m.jobs {
		for _, r := range j.runs {
			if !r.requeued || r.readySent {
				continue
			}
			latest := r == j.runs[len(j.runs)-1]
			lives := !j.ended && !j.cancelled && (j.member == nil || j.member.lives())
			if _, proved := j.proofs[r.id]; proved && latest && lives && r.readyAfter < r.retryAfter {
				runs = append(runs, r)
			}
		}
	}
	place := func(r *run) int { // of its proof, or of its failure among those proved before
		if proof := r.job.proofs[r.id]; proof > m.before {
			return proof
		}
		return slices.Index(m.failed, r) - len(m.failed)
	}
	slices.SortFunc(runs, func(a, b *run) int { return place(a) - place(b) })
	var records []Record
	for _, r := range runs {
		r.readySent = true
		m.Seen["retry ready"]++
		if r.failure.message == m.messages {
			m.Seen["retry ready in the message of the decision"]++
		}
		records = append(records, Record{
			Kind: RetryReady, Ledger: msg.Ledger, Entry: msg.Entry, Batch: msg.Batch,
			Queue: r.job.queue, JobSet: r.job.set, JobID: r.job.id, RunID: r.id,
			RetryAfter: r.readyAfter,
		})
	}
	return records
}

// forget drops the jobs whose time has come (§1).
func (m *Model) forget() {
	horizon := big.NewInt(m.policies.horizonMs())
	horizon.Mul(horizon, big.NewInt(1_000_000))
	passed := func(base int64, horizons int64) bool {
		end := new(big.Int).Mul(horizon, big.NewInt(horizons))
		end.Add(end, big.NewInt(base))
		return big.NewInt(*m.watermark).Cmp(end) > 0
	}
	m.forgetGroups(func(since int64) bool { return passed(since, 1) })
	for id, j := range m.jobs {
		switch {
		case j.member != nil: // semantics.md 12.3: "A member is forgotten only with its group."
		case !j.known:
			// "What is kept for a job whose SubmitJob never came is forgotten
			// after horizon", counted from when something was first kept.
			// READING: this holds also when an end is among it, instead of the
			// rule for ended jobs. (Otherwise: the later, or the end's.)
			if passed(j.firstKept, 1) {
				m.Seen["forgotten: unknown"]++
				delete(m.jobs, id)
			}
		case j.ended:
			// "forgotten before the first message after which watermark >
			// (watermark when it ended) + horizon".
			if passed(j.endedAt, 1) {
				m.Seen["forgotten: ended"]++
				delete(m.jobs, id)
			}
		case j.verdict && j.verdictRun == len(j.runs):
			// "A job whose latest run has the scheduler's terminal verdict, and
			// that neither ran nor ended since, is forgotten seven horizons
			// after the later of that verdict and its retryAfter".
			// READING: "ran since" means that a newer run became known.
			// (Otherwise: any JobRunRunning, also of the same run.)
			// READING: its retryAfter is that of the latest run's JobRequeued.
			// (Otherwise: of the job's last JobRequeued, whichever run's.)
			base := j.verdictAt
			if len(j.runs) > 0 {
				if latest := j.runs[len(j.runs)-1]; latest.requeued {
					base = max(base, latest.retryAfter)
				}
			}
			if passed(base, 7) {
				m.Seen["forgotten: verdict"]++
				if len(j.runs) == 0 {
					m.Seen["forgotten: verdict without run"]++
				}
				delete(m.jobs, id)
			}
		}
	}
}

// kept returns what is kept for a job id, from now on if not before.
// READING: a job is told by its id alone, in whatever queue and set the message
// stands that names it. (Otherwise: a message of another queue or set names
// another job.)
func (m *Model) kept(id string) *job {
	if m.jobs[id] == nil {
		m.jobs[id] = &job{id: id, firstKept: *m.watermark, proofs: map[string]int{}}
	}
	m.touch(m.jobs[id])
	return m.jobs[id]
}

// run returns a run of the job, which becomes known if it was not.
// READING: "the number of run ids of that job seen before it" counts runs that
// became known. (Otherwise: also those that only a JobRunTerminated named.)
func (m *Model) run(j *job, id string) *run {
	for _, r := range j.runs {
		if r.id == id {
			return r
		}
	}
	if j.known && len(j.runs) == 0 {
		m.firstRun(j.queue) // semantics.md 14
	}
	r := &run{job: j, id: id, index: len(j.runs)}
	j.runs = append(j.runs, r)
	if j.member != nil {
		j.member.quiet = false
		j.member.pending = nil // semantics.md 12.6: "The next run's lease clears the pending restart."
	}
	return r
}

// nodeOf is the node of a failed run (§2).
func nodeOf(r *run) string {
	if node := r.failure.err.GetPodError().GetNodeName(); node != "" {
		return node
	}
	if r.runningNode != "" {
		return r.runningNode
	}
	// READING: "its first JobRunLeased.node_id" is that of the first
	// JobRunLeased, also when it is empty and a later one's is not.
	// (Otherwise: the first that names one.)
	if r.leasedNode != nil {
		return *r.leasedNode
	}
	return ""
}

// saturate turns a big number into an int64.
func saturate(n *big.Int) int64 {
	switch {
	case n.IsInt64():
		return n.Int64()
	case n.Sign() < 0:
		return math.MinInt64
	}
	return math.MaxInt64
}

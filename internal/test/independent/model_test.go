// Package independent holds a second model of what protects a fleet: retry budgets, breakers and orders of operators, for single jobs
// (semantics.md 14 to 16, and of the rest what these need). Its author had read the documents, and none of the engine or of its other
// model (internal/test/model). It is slow: what a budget has counted is looked up in all that ever happened.
package independent

import (
	"crypto/sha256"
	"encoding/binary"
	"math/big"
	"slices"
	"sort"
	"strings"
)

// Times and lengths are nanoseconds.
const (
	ms     = int64(1_000_000)
	second = 1000 * ms
	minute = 60 * second
	hour   = 60 * minute
)

// config is one generation of policies.
type config struct {
	GlobalMax   int64
	Disabled    bool
	Slack       int64
	LegacyMax   int
	Horizon     int64
	Shadow      bool
	PausedUntil int64
	Breakers    []breaker
	Avoid       []avoided
	Policies    []policy
	Queues      []queue
	Budgets     []budget
}

type policy struct {
	Name    string
	Limit   int64  // -1: unset
	Default string // Retry, Fail or "": not stated
	Initial int64
	Mult    int64 // thousandths
	Max     int64
	Jitter  int64 // thousandths
	Node    bool  // antiAffinity: node
	Wait    bool  // replacement: WhenTerminated
	Rules   []rule
}

type rule struct {
	Name       string
	Categories []string
	Conditions []string
	Action     string // Retry, Fail or Ignore
	Limit      int64  // -1: unset
}

type queue struct {
	Name        string
	Policies    []string
	Mode        string // Enforce, Shadow or "": as the settings say
	Killed      bool
	PausedUntil int64
}

type budget struct {
	Name   string
	Queue  string // "": all queues together
	Ratio  int64  // thousandths
	Floor  int64
	Window int64
	Refuse bool
	Shadow bool
}

type breaker struct {
	Category, Subcategory, Queue string
	Until                        int64
}

type avoided struct {
	Name  string
	Until int64
}

// message is one message of the input, or a generation of policies that is in force from here on.
type message struct {
	Config     *config
	Queue, Set string
	Publish    int64
	Events     []event
}

// event is one event. Kinds have the names of Armada's events.
type event struct {
	Kind     string
	T        int64 // as stated, before it is clamped to the publish time
	Job, Run string
	Node     string
	Grace    int64  // of a SubmitJob, in seconds; 0: unset
	FailFast bool   // of a SubmitJob
	Error    failed // of JobRunErrors; JobErrors is terminal, and Error.Kind says whether it is JobRejected
	Order    order
}

// failed is an error. Before it stands, in an event of several, one that is not terminal.
type failed struct {
	Kind                  string // pod, returned, unattempted, expired, preempted, other, rejected
	Category, Subcategory string
	Exit                  int64 // of a container called main; 0: no container is reported
	NotTerminal           bool
	Second                bool // another terminal error follows in the same event, of category "second"
}

type order struct {
	ID, Action string
	NotBefore  int64
}

// record is what comes out, in order. Fields that do not belong to its kind are zero.
type record struct {
	Kind                     string // Requeued, Failed, NotDecided, RetryReady, OrderAnswered
	Job, Run                 string
	Code                     string // or the reason of NotDecided, or the refusal of an order
	Policy, Rule             string
	T                        int64
	RetryAfter, Delay        int64
	Ready                    int64
	RuleUsed, RuleLimit      int64 // -1: was not checked
	GlobalUsed, GlobalLimit  int64
	Avoid                    string
	Shadow                   bool
	Budget, Effect           string
	BudgetShadow             bool
	FirstRuns, Left, Granted int64
	Order, Action            string
	RetryGranted             bool // an order granted a retry, or started one: RetryAfter and Ready are its
}

type run struct {
	id         string
	leasedOn   string
	ranOn      string
	ended      bool
	well       bool
	failedAt   int64 // t
	failedIn   int   // message
	byRun      bool  // JobRunPreempted was among its ends
	byError    bool
	err        failed
	decided    string // "", Requeued, Failed or NotDecided
	retryAfter int64
	ready      int64
	gone       bool
	node       string
}

type job struct {
	id, queue, set string
	known          bool
	failFast       bool
	grace          int64
	runs           []*run
	cancelled      bool // or someone asked for it
	ended          bool
	succeeded      bool
	endedAt        int64 // watermark
	arrivedAt      int64 // watermark when the first event named it
	verdict        bool
	verdictAt      int64
	gone           []string // runs whose pods were gone before they were known
	granted        map[string]int64
	ignored        map[string]int64
	total          int64
	returns        int64
	nodes          []string // of attempted failed runs
	answered       []string
}

// spent is one entry of the whole history of budgets.
type spent struct {
	gen     int    // the generation in force
	budget  string // "": a first run
	queue   string // of a first run
	at      int64  // the watermark
	byFloor bool
	moment  int64 // for which the floor granted
}

type model struct {
	partitions int64
	gens       []*config
	watermark  int64
	started    bool
	jobs       map[string]*job
	order      []string
	history    []spent
	out        []record
	message    int
}

func newModel(partitions int) *model {
	return &model{partitions: int64(partitions), jobs: map[string]*job{}}
}

func (m *model) config() *config { return m.gens[len(m.gens)-1] }

func (m *model) job(id string) *job {
	j := m.jobs[id]
	if j == nil {
		j = &job{id: id, granted: map[string]int64{}, ignored: map[string]int64{}, arrivedAt: m.watermark}
		m.jobs[id] = j
		m.order = append(m.order, id)
	}
	return j
}

func (j *job) latest() *run {
	if len(j.runs) == 0 {
		return nil
	}
	return j.runs[len(j.runs)-1]
}

func (j *job) find(id string) *run {
	for _, r := range j.runs {
		if r.id == id {
			return r
		}
	}
	return nil
}

// process folds one message and returns its records.
func (m *model) process(msg message) []record {
	m.out = nil
	m.message++
	if msg.Config != nil {
		m.gens = append(m.gens, msg.Config)
		return nil
	}
	msg.Events = slices.Clone(msg.Events)
	for i, e := range msg.Events {
		e.T = max(msg.Publish-5*minute, min(msg.Publish+5*minute, e.T))
		msg.Events[i] = e
		if !m.started || e.T > m.watermark {
			m.watermark, m.started = e.T, true
		}
	}
	m.forget()
	type failure struct {
		j *job
		r *run
	}
	var failures []failure
	var proofs []failure
	var orders []event
	for _, e := range msg.Events {
		if e.Kind == "CancelJobSet" {
			for _, id := range m.order {
				if j := m.jobs[id]; j != nil && j.known && j.queue == msg.Queue && j.set == msg.Set {
					j.cancelled = true
				}
			}
			continue
		}
		j := m.job(e.Job)
		known := func() *run {
			r := j.find(e.Run)
			if r != nil {
				return r
			}
			r = &run{id: e.Run, gone: slices.Contains(j.gone, e.Run)}
			j.runs = append(j.runs, r)
			j.verdict = false
			if j.known && len(j.runs) == 1 {
				m.history = append(m.history, spent{gen: len(m.gens) - 1, queue: j.queue, at: m.watermark})
			}
			return r
		}
		proof := func(r *run) {
			if !r.gone {
				r.gone = true
				proofs = append(proofs, failure{j, r})
			}
		}
		switch e.Kind {
		case "SubmitJob":
			if !j.known {
				j.known, j.queue, j.set, j.failFast = true, msg.Queue, msg.Set, e.FailFast
				j.grace = min(max(e.Grace, 1), 300) * second
			}
		case "JobRunLeased":
			r := known()
			if r.leasedOn == "" {
				r.leasedOn = e.Node
			}
		case "JobRunRunning":
			r := known()
			if !r.ended && e.Node != "" {
				r.ranOn = e.Node
			}
		case "JobRunSucceeded":
			r := known()
			if !r.ended {
				r.ended, r.well = true, true
			}
			proof(r)
		case "JobRunPreempted":
			r := known()
			switch {
			case !r.ended:
				r.ended, r.byRun, r.failedAt, r.failedIn = true, true, e.T, m.message
				failures = append(failures, failure{j, r})
			case !r.well && r.failedIn == m.message:
				r.byRun = true
			}
		case "JobRunErrors":
			r := known()
			err := e.Error
			if err.NotTerminal {
				if !err.Second {
					break
				}
				err = failed{Kind: "pod", Category: "second", Exit: 1} // the first terminal one counts
			}
			switch {
			case !r.ended:
				r.ended, r.byError, r.failedAt, r.failedIn, r.err = true, true, e.T, m.message, err
				failures = append(failures, failure{j, r})
			case !r.well && r.failedIn == m.message && !r.byError:
				r.byError, r.err = true, err
			case (r.well || r.failedIn < m.message) && (err.Kind == "pod" || err.Kind == "returned" || err.Kind == "unattempted"):
				proof(r)
			}
		case "JobRunTerminated":
			if r := j.find(e.Run); r != nil {
				proof(r)
			} else {
				j.gone = append(j.gone, e.Run)
			}
		case "JobErrors":
			if e.Error.Kind == "rejected" {
				j.succeeded = false
				m.end(j)
			} else {
				j.verdict, j.verdictAt = true, m.watermark
			}
		case "JobSucceeded":
			if !j.ended {
				j.succeeded = true
			}
			m.end(j)
		case "CancelJob":
			j.cancelled = true
		case "CancelledJob":
			j.cancelled = true
			m.end(j)
		case "JobOrder":
			orders = append(orders, e)
		}
	}
	for _, f := range failures {
		f.r.node = f.r.ranOn
		if f.r.node == "" {
			f.r.node = f.r.leasedOn
		}
		if f.r.err.Kind != "unattempted" && f.r.node != "" && !slices.Contains(f.j.nodes, f.r.node) {
			f.j.nodes = append(f.j.nodes, f.r.node)
		}
	}
	for _, f := range failures {
		m.decide(f.j, f.r)
	}
	for _, e := range orders {
		m.answer(m.job(e.Job), e, msg)
	}
	// Proof that came before the decision, in order of failure; then the others in order of proof.
	for _, f := range failures {
		m.proven(f.j, f.r)
	}
	for _, f := range proofs {
		m.proven(f.j, f.r)
	}
	return m.out
}

func (m *model) end(j *job) {
	if !j.ended {
		j.ended, j.endedAt = true, m.watermark
	}
}

// forget is semantics.md 1, State is bounded.
func (m *model) forget() {
	if len(m.gens) == 0 {
		return
	}
	h := m.config().Horizon
	for id, j := range m.jobs {
		gone := false
		switch {
		case !j.known:
			gone = m.watermark > j.arrivedAt+h
		case j.ended:
			gone = m.watermark > j.endedAt+h
		case j.verdict:
			after := j.verdictAt
			if r := j.latest(); r != nil && r.decided == "Requeued" {
				after = max(after, r.retryAfter)
			}
			gone = m.watermark > after+7*h
		}
		if gone {
			delete(m.jobs, id)
			m.order = slices.DeleteFunc(m.order, func(o string) bool { return o == id })
		}
	}
}

func (m *model) proven(j *job, r *run) {
	if r.gone && !j.ended && !j.cancelled && j.known && j.latest() == r && r.decided == "Requeued" && r.ready < r.retryAfter {
		r.retryAfter = r.ready
		m.out = append(m.out, record{Kind: "RetryReady", Job: j.id, Run: r.id, RetryAfter: r.ready})
	}
}

func (c *config) queue(name string) queue {
	for _, q := range c.Queues {
		if q.Name == name {
			return q
		}
	}
	return queue{Name: name}
}

func (c *config) shadow(q string) bool {
	switch c.queue(q).Mode {
	case "Shadow":
		return true
	case "Enforce":
		return false
	}
	return c.Shadow
}

func (c *config) killed(q string) bool { return c.GlobalMax == 0 || c.queue(q).Killed }
func (c *config) paused(q string) int64 {
	return max(c.PausedUntil, c.queue(q).PausedUntil)
}

func (r *run) has(condition string) bool {
	switch condition {
	case "Preempted":
		return r.byRun || r.err.Kind == "preempted"
	case "LeaseExpired":
		return r.err.Kind == "expired"
	case "LeaseReturned":
		return r.err.Kind == "returned"
	case "Unschedulable":
		return r.err.Kind == "unattempted"
	}
	return false
}

// proves is semantics.md 8: the failure itself proves that its pod is over.
func (r *run) proves() bool {
	e := r.err
	return e.Kind == "returned" || e.Kind == "unattempted" || e.Kind == "pod" && e.Exit != 0 && e.Category != "internal" ||
		e.Category == "internal" && (e.Subcategory == "job-creation-failed" || e.Subcategory == "pod-missing")
}

// share01 is floor(amount × part/1000 × u), u from the hash of the run.
func share01(amount, part int64, run string) int64 {
	h := sha256.Sum256([]byte(run))
	n := new(big.Int).Mul(big.NewInt(amount), big.NewInt(part))
	n.Mul(n, big.NewInt(int64(binary.BigEndian.Uint32(h[:4]))))
	n.Div(n, new(big.Int).Mul(big.NewInt(1000), new(big.Int).Lsh(big.NewInt(1), 32)))
	return n.Int64()
}

// backoff is the delay of the n-th retry of a rule, with jitter, in nanoseconds.
func (p policy) backoff(n int64, run string) int64 {
	d := new(big.Rat).SetInt64(p.Initial / ms)
	for i := int64(1); i < n; i++ {
		d.Mul(d, big.NewRat(p.Mult, 1000))
	}
	if most := new(big.Rat).SetInt64(p.Max / ms); d.Cmp(most) > 0 {
		d = most
	}
	whole := new(big.Int).Quo(d.Num(), d.Denom()).Int64()
	return (whole + share01(whole, p.Jitter, run)) * ms
}

// decide is sections 1, 3, 5, 6, 9, 14 and 15 for one failed run.
func (m *model) decide(j *job, r *run) {
	c := m.config()
	out := record{Job: j.id, Run: r.id, T: r.failedAt, RuleUsed: -1, RuleLimit: -1}
	reason := ""
	switch {
	case j.latest() != r:
		reason = "StaleRun"
	case j.cancelled:
		reason = "Cancelled"
	case j.ended:
		reason = "Ended"
	case !j.known:
		reason = "UnknownJob"
	}
	if reason != "" {
		r.decided = "NotDecided"
		m.out = append(m.out, record{Kind: "NotDecided", Job: j.id, Run: r.id, Code: reason})
		return
	}
	if r.err.Kind == "returned" {
		j.returns++
	}
	out.Shadow = c.shadow(j.queue)
	fail := func(code string) {
		out.Kind, out.Code = "Failed", code
		out.GlobalUsed, out.GlobalLimit = j.total, c.GlobalMax
		r.decided = "Failed"
		if !out.Shadow {
			m.end(j)
		}
		m.out = append(m.out, out)
	}
	requeue := func(code string, own []string, after, ready, delay int64) {
		out.Kind, out.Code = "Requeued", code
		out.GlobalUsed, out.GlobalLimit = j.total, c.GlobalMax
		out.RetryAfter, out.Ready, out.Delay = after, ready, delay
		out.Avoid = strings.Join(c.avoid(own, r.failedAt), ",")
		r.decided, r.retryAfter, r.ready = "Requeued", after, ready
		m.out = append(m.out, out)
	}
	legacy := func() {
		switch {
		case r.err.Kind == "unattempted" || r.err.Kind == "returned" && j.returns < int64(c.LegacyMax):
			requeue("LeaseReturned", j.nodes, r.failedAt, r.failedAt, 0)
		case r.err.Kind == "returned":
			fail("LegacyLimit")
		default:
			fail("NoPolicy")
		}
	}
	if j.failFast {
		fail("FailFast")
		return
	}
	var apply []policy
	for _, name := range c.queue(j.queue).Policies {
		for _, p := range c.Policies {
			if p.Name == name {
				apply = append(apply, p)
			}
		}
	}
	if c.Disabled || len(apply) == 0 {
		legacy()
		return
	}
	action, found, by, ru := "", false, policy{}, rule{}
	for _, p := range apply {
		for _, candidate := range p.Rules {
			matches := len(candidate.Categories) == 0 || slices.Contains(candidate.Categories, r.err.Category)
			if len(candidate.Conditions) > 0 && !slices.ContainsFunc(candidate.Conditions, r.has) {
				matches = false
			}
			if matches && !found {
				found, by, ru, action = true, p, candidate, candidate.Action
			}
		}
	}
	codes := map[string]string{"Retry": "RuleRetry", "Fail": "RuleFail", "Ignore": "RuleIgnore"}
	if !found {
		if r.err.Kind == "returned" || r.err.Kind == "unattempted" {
			legacy()
			return
		}
		codes = map[string]string{"Retry": "DefaultRetry", "Fail": "DefaultFail"}
		action = "Fail"
		for _, p := range slices.Backward(apply) {
			if p.Default != "" {
				action, by, ru = p.Default, p, rule{Name: "default", Limit: -1}
			}
		}
	}
	out.Policy, out.Rule = by.Name, ru.Name
	if action == "Fail" {
		fail(codes[action])
		return
	}
	if c.killed(j.queue) {
		fail("KillSwitch")
		return
	}
	key := by.Name + "/" + ru.Name
	n := j.ignored[key] + 1
	if action == "Retry" {
		n = j.granted[key] + 1
		limit, code := ru.Limit, "RuleLimit"
		if limit < 0 {
			limit, code = by.Limit, "PolicyLimit"
		}
		if limit < 0 {
			limit, code = c.GlobalMax, "GlobalLimit"
		}
		out.RuleUsed, out.RuleLimit = j.granted[key], limit
		switch {
		case j.granted[key] >= limit:
			fail(code)
			return
		case j.total >= c.GlobalMax:
			fail("GlobalLimit")
			return
		}
	}
	delay := by.backoff(n, r.id)
	withGrace := delay
	if (r.has("Preempted") || r.has("LeaseExpired") || by.Wait) && !r.proves() {
		withGrace = max(delay, j.grace+c.Slack)
	}
	noEarlier := c.paused(j.queue)
	var own []string
	if by.Node && r.node != "" {
		own = []string{r.node}
	}
	code := codes[action]
	if until := c.held(r.failedAt, r.err, j.queue); until > 0 {
		// Held: counts nowhere, and no budget is asked.
		noEarlier = max(noEarlier, until+share01((until-r.failedAt)/ms, 100, r.id)*ms)
		requeue("BreakerHeld", own, max(r.failedAt+withGrace, noEarlier), max(r.failedAt+delay, noEarlier), withGrace)
		return
	}
	if action == "Retry" {
		refused, moment := m.ask(j, &out)
		if refused {
			fail("BudgetRefused")
			return
		}
		noEarlier = max(noEarlier, moment)
		j.granted[key]++
		j.total++
		out.RuleUsed = j.granted[key]
	} else {
		j.ignored[key]++
	}
	requeue(code, own, max(r.failedAt+withGrace, noEarlier), max(r.failedAt+delay, noEarlier), withGrace)
}

// avoid is semantics.md 7: the job's own nodes, then those of the settings by name.
func (c *config) avoid(own []string, t int64) []string {
	out := slices.Clone(own)
	var others []string
	for _, a := range c.Avoid {
		if t < a.Until && !slices.Contains(own, a.Name) && !slices.Contains(others, a.Name) {
			others = append(others, a.Name)
		}
	}
	sort.Strings(others)
	return append(out, others...)
}

// held is the latest time until which breakers hold this failure, 0 if none does.
func (c *config) held(t int64, e failed, queue string) int64 {
	latest := int64(0)
	for _, b := range c.Breakers {
		if e.Category != "" && e.Category == b.Category && (b.Subcategory == "" || b.Subcategory == e.Subcategory) &&
			(b.Queue == "" || b.Queue == queue) && t < b.Until {
			latest = max(latest, b.Until)
		}
	}
	return latest
}

// lived is the first generation of the life of a budget of the newest one: the oldest from which on every generation has it, by name,
// queue and window.
func (m *model) lived(b budget) int {
	first := len(m.gens) - 1
	for first > 0 && slices.ContainsFunc(m.gens[first-1].Budgets, func(o budget) bool {
		return o.Name == b.Name && o.Queue == b.Queue && o.Window == b.Window
	}) {
		first--
	}
	return first
}

// grant is what a budget answers.
type grant struct {
	b         budget
	byFloor   bool
	moment    int64 // for which it grants
	never     bool  // it never would
	firstRuns int64
	left      int64
}

func (g grant) held(now int64) bool { return g.never || g.moment > now }

// one asks a budget for one retry, given all of the history, and some that is only imagined.
func (m *model) one(b budget, imagined []spent) grant {
	now := m.watermark
	slice := func(at int64) int64 { // number of the tenth of a window that a moment is in
		return new(big.Int).Div(new(big.Int).Mul(big.NewInt(at), big.NewInt(10)), big.NewInt(b.Window)).Int64()
	}
	first := m.lived(b)
	var firstRuns, paid int64
	var moments []int64
	for _, s := range append(slices.Clone(m.history), imagined...) {
		inWindow := slice(s.at) > slice(now)-10 && slice(s.at) <= slice(now)
		switch {
		case s.gen < first:
		case s.budget == "":
			if (b.Queue == "" || b.Queue == s.queue) && inWindow {
				firstRuns++
			}
		case s.budget != b.Name:
		case s.byFloor:
			moments = append(moments, s.moment)
		case inWindow:
			paid++
		}
	}
	g := grant{b: b, firstRuns: firstRuns, moment: now}
	if firstRuns*b.Ratio/1000 > paid {
		return g
	}
	g.byFloor = true
	share := (b.Floor + m.partitions - 1) / m.partitions
	if share == 0 {
		g.never = true
		return g
	}
	has := func(at int64) bool { // room in the window that ends at this moment
		n := int64(0)
		for _, x := range moments {
			if x > at-b.Window && x <= at {
				n++
			}
		}
		return n < share
	}
	// Room appears now, or when an older one leaves the window.
	room := func(from int64) int64 {
		candidates := []int64{from}
		for _, x := range moments {
			candidates = append(candidates, x+b.Window)
		}
		slices.Sort(candidates)
		for _, at := range candidates {
			if at >= from && has(at) {
				return at
			}
		}
		panic("the last one has left the window")
	}
	g.moment = room(now)
	if len(moments) > 0 {
		if last := slices.Max(moments); g.moment > now || last > now {
			g.moment = room(max(now, last+b.Window/share))
		}
	}
	return g
}

// ask asks all budgets for a retry of a job, and notes in the record which held it back the most. moment is when they let it start, 0 if
// they do not hold it back.
func (m *model) ask(j *job, out *record) (refused bool, moment int64) {
	now := m.watermark
	var grants []grant
	for _, b := range m.config().Budgets {
		if b.Queue != "" && b.Queue != j.queue {
			continue
		}
		g := m.one(b, nil)
		var imagined []spent
		for next := g; !next.held(now); next = m.one(b, imagined) {
			g.left++
			imagined = append(imagined, spent{gen: len(m.gens) - 1, budget: b.Name, at: now, byFloor: next.byFloor, moment: next.moment})
		}
		grants = append(grants, g)
		if g.held(now) && !b.Shadow {
			if b.Refuse {
				refused = true
			}
			moment = max(moment, g.moment)
		}
	}
	if len(grants) == 0 {
		return false, 0
	}
	rank := func(g grant) int {
		n := 0
		switch {
		case g.held(now) && g.b.Refuse:
			n = 2
		case g.held(now):
			n = 1
		}
		if n > 0 && !g.b.Shadow {
			n += 2
		}
		return n
	}
	slices.SortStableFunc(grants, func(a, b grant) int {
		switch {
		case rank(a) != rank(b):
			return rank(b) - rank(a)
		case a.moment != b.moment:
			return int(max(-1, min(1, b.moment-a.moment)))
		case a.left != b.left:
			return int(a.left - b.left)
		}
		return strings.Compare(a.b.Name, b.b.Name)
	})
	worst := grants[0]
	out.Budget, out.BudgetShadow, out.FirstRuns, out.Left, out.Granted = worst.b.Name, worst.b.Shadow, worst.firstRuns, worst.left, worst.moment
	out.Effect = "BudgetGranted"
	if worst.held(now) {
		out.Effect = "BudgetDelayed"
		if worst.b.Refuse {
			out.Effect = "BudgetExhausted"
		}
	}
	if refused {
		return true, 0
	}
	for _, g := range grants {
		if g.held(now) && g.b.Refuse { // in shadow: it would not have been granted
			continue
		}
		if m.config().shadow(j.queue) && g.b.Queue == "" {
			continue
		}
		m.history = append(m.history, spent{gen: len(m.gens) - 1, budget: g.b.Name, at: now, byFloor: g.byFloor, moment: g.moment})
	}
	return false, moment
}

// answer is semantics.md 16.
func (m *model) answer(j *job, e event, msg message) {
	c := m.config()
	if slices.Contains(j.answered, e.Order.ID) {
		return
	}
	j.answered = append(j.answered, e.Order.ID)
	if len(j.answered) > 16 {
		j.answered = j.answered[1:]
	}
	r := j.find(e.Run)
	refusal := ""
	switch {
	case e.Order.Action != "Retry" && e.Order.Action != "GiveUp" && e.Order.Action != "Start":
		refusal = "UnknownAction"
	case !j.known || j.queue != msg.Queue || j.set != msg.Set:
		refusal = "UnknownJob"
	case j.cancelled:
		refusal = "Cancelled"
	case r == nil || j.latest() != r:
		refusal = "StaleRun"
	case !r.ended:
		refusal = "Running"
	case r.well || j.succeeded:
		refusal = "Succeeded"
	case r.decided == "" || r.decided == "NotDecided":
		refusal = "NotDecided"
	case r.decided == "Requeued" && j.ended:
		refusal = "Ended"
	case r.decided == "Requeued" && e.Order.Action == "Retry":
		refusal = "Retrying"
	case r.decided == "Failed" && e.Order.Action != "Retry":
		refusal = "Failed"
	case c.shadow(j.queue):
		refusal = "Shadow"
	case e.Order.Action != "GiveUp" && (c.killed(j.queue) || c.Disabled):
		refusal = "KillSwitch"
	}
	out := record{Kind: "OrderAnswered", Job: j.id, Run: e.Run, Code: refusal, T: e.T, Order: e.Order.ID, Action: e.Order.Action}
	if refusal == "" {
		pod := e.T
		if !r.gone {
			pod = e.T + j.grace + c.Slack
		}
		switch e.Order.Action {
		case "Retry":
			j.ended, r.decided = false, "Requeued"
			r.ready = max(e.T, c.paused(j.queue))
			r.retryAfter = max(r.ready, pod)
			out.Avoid = strings.Join(c.avoid(nil, e.T), ",")
			out.RetryGranted = true
		case "Start":
			ready := max(e.T, e.Order.NotBefore, c.paused(j.queue))
			r.retryAfter = min(r.retryAfter, max(ready, pod))
			r.ready = min(r.ready, ready)
			out.RetryGranted = true
		case "GiveUp":
			j.cancelled = true
		}
		if out.RetryGranted {
			out.RetryAfter, out.Ready = r.retryAfter, r.ready
		}
	}
	m.out = append(m.out, out)
}

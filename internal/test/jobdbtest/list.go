package jobdbtest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
)

// listed is a small deployment: every run that failed was decided, but those that were republished.
type listed struct {
	jobs      []*jobdb.Job
	runs      []*jobdb.Run
	decisions []*jobdb.Decision
	groups    []*jobdb.Group
}

// step is between two times of these: kept counts are of hours.
const step = 30000e9

func newListed(r *rand.Rand, partition int) *listed {
	l := &listed{}
	pick := func(names ...string) string { return names[r.IntN(len(names))] }
	for i := range 20 {
		j := job(partition, fmt.Sprintf("%s%02d", pick("a", "b"), i))
		j.Queue, j.JobSet, j.State = pick("q", "other"), pick("s", "t"), jobdb.JobState(r.IntN(10))
		if j.Times.Submitted = step * int64(r.IntN(9)); j.State.Terminal() { // as the fold has them
			j.Times.Ended = 1 + int64(r.IntN(4))
		} else if j.State.Waiting() {
			j.Queueing.RetryAfter = int64(r.IntN(3))
		}
		j.Member.Group = pick("", "g")
		l.jobs = append(l.jobs, j)
		for n := range uint32(r.IntN(3)) {
			v := run(partition, j.JobID, fmt.Sprintf("%s/%d", j.JobID, n), n)
			j.Queueing.Runs++
			v.State, v.Node = jobdb.RunState(r.IntN(7)), pick("", "n1")
			if v.Times.Leased = step * int64(r.IntN(9)); r.IntN(3) > 0 {
				v.State = jobdb.RunFailed
			}
			l.runs = append(l.runs, v)
			if v.State.Ended() && r.IntN(9) > 0 {
				v.Times.Ended = 1 + int64(r.IntN(9))
			} else if v.State == jobdb.RunSucceeded {
				v.Times.Ended = 1
			}
			if v.State != jobdb.RunFailed || v.Times.Ended == 0 {
				continue
			}
			v.Error.Node, v.Error.Category = pick("", "n1", "n2"), pick("", "oom", "gpu")
			d := sample[jobdb.Decision](1)
			d.Partition, d.Number, d.JobID, d.RunID, d.Queue, d.JobSet = partition, uint64(len(l.decisions)+1), j.JobID, v.RunID, j.Queue, j.JobSet
			d.Code, d.Policy, d.Rule, d.Time = policy.Code(1+r.IntN(3)), pick("infra", "ml"), pick("", "oom"), step*int64(r.IntN(9))
			d.Acted, d.Requeue = r.IntN(4) > 0, r.IntN(2) > 0
			l.decisions = append(l.decisions, d)
		}
	}
	for i := range 9 {
		g := sample[jobdb.Group](1)
		g.Partition, g.Queue, g.JobSet, g.Name = partition, pick("q", "other"), pick("s", "t"), fmt.Sprint("g", i)
		g.ID, g.State, g.Policy, g.Rule, g.Restarts = jobdb.GroupID(g.Queue, g.JobSet, g.Name), policy.GroupState(r.IntN(4)), pick("infra", "ml"), pick("", "oom"), uint32(r.IntN(3))
		l.groups = append(l.groups, g)
	}
	return l
}

// drawCriteria draws one that selects by a few things.
func drawCriteria(r *rand.Rand) *jobdb.Criteria {
	c := &jobdb.Criteria{}
	some := func() bool { return r.IntN(5) == 0 }
	for field, value := range map[*string]string{
		&c.JobPrefix: "a", &c.JobID: "a01", &c.Queue: "q", &c.JobSet: "t", &c.Group: "g",
		&c.Policy: "infra", &c.Rule: "oom", &c.Node: "n1", &c.Category: "gpu",
	} {
		if r.IntN(9) == 0 {
			*field = value
		}
	}
	if some() {
		c.States = [][]uint8{{1, 3, 5}, {5}, {4}, {6}, {1, 3}, {5, 6, 7}}[r.IntN(6)]
	}
	if some() {
		c.Queues = [][]string{{"q"}, {"other", "q"}, {"other", "none"}}[r.IntN(3)]
	}
	if some() {
		c.Codes = []policy.Code{1, 2}
	}
	if some() {
		c.Since = step * int64(r.IntN(6))
	}
	if some() {
		c.Until = step * int64(3+r.IntN(6))
	}
	c.Waiting = r.IntN(9) == 0
	return c
}

// What follows says in plain Go what a list selects.

func is(want, got string) bool { return want == "" || want == got }

func among[V comparable](list []V, v V) bool { return len(list) == 0 || slices.Contains(list, v) }

func inTime(c *jobdb.Criteria, at int64) bool {
	return at >= c.Since && (c.Until == 0 || at < c.Until && at != 0)
}

func (l *listed) ofJob(c *jobdb.Criteria, id string) bool {
	i := slices.IndexFunc(l.jobs, func(j *jobdb.Job) bool { return j.JobID == id })
	return is(c.JobID, id) && strings.HasPrefix(id, c.JobPrefix) && is(c.Queue, l.jobs[i].Queue) && among(c.Queues, l.jobs[i].Queue) && is(c.JobSet, l.jobs[i].JobSet) && is(c.Group, l.jobs[i].Member.Group)
}

func ofRun(c *jobdb.Criteria, r *jobdb.Run) bool {
	return is(c.Node, cmp.Or(r.Error.Node, r.Node)) && is(c.Category, r.Error.Category)
}

func ofDecision(c *jobdb.Criteria, d *jobdb.Decision) bool {
	return among(c.Codes, d.Code) && is(c.Policy, d.Policy) && is(c.Rule, d.Rule)
}

func (l *listed) wantJobs(c *jobdb.Criteria) (ids []string) {
	for _, j := range l.jobs {
		run := func(r *jobdb.Run) bool { return r.JobID == j.JobID && ofRun(c, r) }
		decision := func(d *jobdb.Decision) bool { return d.JobID == j.JobID && ofDecision(c, d) }
		if l.ofJob(c, j.JobID) && among(c.States, uint8(j.State)) && inTime(c, j.Times.Submitted) &&
			(!c.Waiting || j.Queueing.RetryAfter != 0) &&
			(c.Node+c.Category == "" || slices.ContainsFunc(l.runs, run)) &&
			(c.Policy+c.Rule == "" && c.Codes == nil || slices.ContainsFunc(l.decisions, decision)) {
			ids = append(ids, j.JobID)
		}
	}
	return ids
}

func (l *listed) wantRuns(c *jobdb.Criteria) (ids []string) {
	for _, r := range l.runs {
		decision := func(d *jobdb.Decision) bool { return d.RunID == r.RunID && ofDecision(c, d) }
		if l.ofJob(c, r.JobID) && ofRun(c, r) && among(c.States, uint8(r.State)) && inTime(c, r.Times.Leased) &&
			(c.Policy+c.Rule == "" && c.Codes == nil || slices.ContainsFunc(l.decisions, decision)) {
			ids = append(ids, r.RunID)
		}
	}
	return ids
}

func (l *listed) wantDecisions(c *jobdb.Criteria) (wanted []*jobdb.Decision) {
	for _, d := range l.decisions {
		run := func(r *jobdb.Run) bool { return r.RunID == d.RunID && ofRun(c, r) }
		if l.ofJob(c, d.JobID) && ofDecision(c, d) && inTime(c, d.Time) && slices.ContainsFunc(l.runs, run) {
			wanted = append(wanted, d)
		}
	}
	return wanted
}

func (l *listed) wantGroups(c *jobdb.Criteria) (names []string) {
	for _, g := range l.groups {
		if is(c.Queue, g.Queue) && among(c.Queues, g.Queue) && is(c.JobSet, g.JobSet) && is(c.Group, g.Name) && among(c.States, uint8(g.State)) && is(c.Policy, g.Policy) && is(c.Rule, g.Rule) {
			names = append(names, g.Name)
		}
	}
	return names
}

// query is one list as this test reads it: the names of a page of rows.
type query func(q jobdb.Queries, c *jobdb.Criteria, p jobdb.Page) (names []string, next []any, err error)

func named[T any](list func(jobdb.Queries, *jobdb.Criteria, jobdb.Page, func(*T) error) ([]any, error), name func(*T) string) query {
	return func(q jobdb.Queries, c *jobdb.Criteria, p jobdb.Page) (names []string, next []any, err error) {
		next, err = list(q, c, p, func(row *T) error {
			names = append(names, name(row))
			return nil
		})
		return names, next, err
	}
}

// testLists: a list selects what its criteria say, its pages are the list in pieces, and
// the other direction is its reverse.
func testLists(t *testing.T, db Database) {
	r := rand.New(rand.NewPCG(1, 2))
	l := newListed(r, 0)
	commit(t, db.Writer, 0, at(0), at(1), &jobdb.Changes{Jobs: l.jobs, Runs: l.runs, Decisions: l.decisions, Groups: l.groups})
	decisionName := func(d *jobdb.Decision) string { return fmt.Sprint(d.Number) }
	lists := []struct {
		name  string
		sorts []string
		query query
		want  func(*jobdb.Criteria) []string
	}{
		{"jobs", jobdb.JobSorts, named(jobdb.Queries.JobList, func(j *jobdb.Job) string { return j.JobID }), l.wantJobs},
		{"runs", jobdb.RunSorts, named(jobdb.Queries.RunList, func(r *jobdb.Run) string { return r.RunID }), l.wantRuns},
		{"groups", jobdb.GroupSorts, named(jobdb.Queries.GroupList, func(g *jobdb.Group) string { return g.Name }), l.wantGroups},
		{"decisions", jobdb.DecisionSorts, named(jobdb.Queries.DecisionList, decisionName), func(c *jobdb.Criteria) (names []string) {
			for _, d := range l.wantDecisions(c) {
				names = append(names, decisionName(d))
			}
			return names
		}},
	}
	found := 0
	view(t, db.Reader, func(q jobdb.Queries) error {
		for range 60 {
			c := drawCriteria(r)
			for _, list := range lists {
				p := jobdb.Page{Sort: list.sorts[r.IntN(len(list.sorts))], Descending: r.IntN(2) > 0}
				got, next, err := list.query(q, c, p)
				if err != nil || next != nil {
					return fmt.Errorf("%s by %+v: %w, next %v", list.name, c, cmp.Or(err, errAnotherPage), next)
				}
				found += len(got)
				want := list.want(c)
				slices.Sort(want)
				equal(t, fmt.Sprintf("%s by %+v", list.name, c), want, slices.Sorted(slices.Values(got)))
				paged, err := inPages(q, c, p, list.name, list.query, 1+r.IntN(5))
				if err != nil {
					return err
				}
				equal(t, fmt.Sprintf("the pages of %s by %+v, %+v", list.name, c, p), got, paged)
				p.Descending = !p.Descending
				reversed, _, err := list.query(q, c, p)
				slices.Reverse(reversed)
				equal(t, fmt.Sprintf("%s by %+v, %+v, reversed", list.name, c, p), got, reversed)
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	if found < 500 {
		t.Errorf("all lists together had %d rows: hardly any", found)
	}
	testTop(t, db, r, l)
	testCounts(t, db, r, l)
	l.prune(t, db)
	testTop(t, db, r, l)
	testCounts(t, db, r, l)
}

// prune deletes a third of the jobs, and changes the states of others.
func (l *listed) prune(t *testing.T, db Database) {
	t.Helper()
	gone := map[string]bool{}
	c := &jobdb.Changes{}
	for i, j := range l.jobs {
		switch i % 3 {
		case 0:
			gone[j.JobID] = true
		case 1:
			c.Replaced = append(c.Replaced, j.Counted())
			j.State, j.Queueing.RetryAfter = jobdb.JobCancelled, 0
			j.Times.Ended = 4
			c.Jobs = append(c.Jobs, j)
		}
	}
	tx, err := db.Writer.Begin(t.Context(), 0)
	if err == nil {
		_, err = tx.Delete(t.Context(), slices.Collect(maps.Keys(gone)), nil)
	}
	if err == nil {
		err = tx.Write(t.Context(), c)
	}
	if err == nil {
		err = tx.Commit(t.Context(), at(1), at(2))
	}
	if err != nil {
		t.Fatal(err)
	}
	was := len(l.decisions)
	l.jobs = slices.DeleteFunc(l.jobs, func(j *jobdb.Job) bool { return gone[j.JobID] })
	l.runs = slices.DeleteFunc(l.runs, func(r *jobdb.Run) bool { return gone[r.JobID] })
	l.decisions = slices.DeleteFunc(l.decisions, func(d *jobdb.Decision) bool { return gone[d.JobID] })
	if wrong := contents(t, db.Reader, 0).Miscounted; wrong != nil || len(l.decisions) == 0 || len(l.decisions) == was {
		t.Errorf("%d of %d decisions are left; kept counts differ from the rows: %+v", len(l.decisions), was, wrong)
	}
	view(t, db.Reader, func(q jobdb.Queries) error { // kept counts by hour have what was pruned
		hours, err := q.Hours(jobdb.HourFilter{})
		n := 0
		for _, h := range hours {
			n += int(h.Count)
		}
		if n != was {
			t.Errorf("%d decisions by hour, want %d", n, was)
		}
		return err
	})
}

// testForgedPlaces: a page begins after values of the columns of its order, and of their types; whatever else a client
// makes up is refused as such.
func testForgedPlaces(t *testing.T, db Database) {
	l := newListed(rand.New(rand.NewPCG(1, 2)), 0)
	commit(t, db.Writer, 0, at(0), at(1), &jobdb.Changes{Jobs: l.jobs, Runs: l.runs, Decisions: l.decisions, Groups: l.groups})
	for _, list := range []struct {
		name  string
		sorts []string
		query query
	}{
		{"jobs", jobdb.JobSorts, named(jobdb.Queries.JobList, func(*jobdb.Job) string { return "" })},
		{"runs", jobdb.RunSorts, named(jobdb.Queries.RunList, func(*jobdb.Run) string { return "" })},
		{"groups", jobdb.GroupSorts, named(jobdb.Queries.GroupList, func(*jobdb.Group) string { return "" })},
		{"decisions", jobdb.DecisionSorts, named(jobdb.Queries.DecisionList, func(*jobdb.Decision) string { return "" })},
	} {
		for _, sort := range list.sorts {
			p := jobdb.Page{Sort: sort, Limit: 1}
			var place []any
			view(t, db.Reader, func(q jobdb.Queries) (err error) {
				_, place, err = list.query(q, &jobdb.Criteria{}, p)
				return err
			})
			if len(place) == 0 {
				t.Fatalf("%s by %s: one page holds everything", list.name, sort)
			}
			forged := map[string][]any{"too short": place[1:], "too long": append(slices.Clone(place), int64(1)), "empty": {}}
			for i, v := range place {
				wrong, large := slices.Clone(place), slices.Clone(place)
				if wrong[i] = any("text"); v == any(fmt.Sprint(v)) {
					wrong[i] = int64(7)
				} else {
					large[i] = int64(math.MaxInt64)
				}
				forged[fmt.Sprint("of another type at ", i)], forged[fmt.Sprint("large at ", i)] = wrong, large
			}
			for what, after := range forged {
				p.After = after
				err := db.Reader.View(t.Context(), func(q jobdb.Queries) error {
					_, _, err := list.query(q, &jobdb.Criteria{}, p)
					return err
				})
				if mayBe := strings.HasPrefix(what, "large"); !errors.Is(err, jobdb.ErrToken) && (err != nil || !mayBe) {
					t.Errorf("%s by %s after a place that is %s (%v): %v, want ErrToken", list.name, sort, what, after, err)
				}
			}
		}
	}
}

// testCounts: counts are those of plain counts.
func testCounts(t *testing.T, db Database, r *rand.Rand, l *listed) {
	view(t, db.Reader, func(q jobdb.Queries) error {
		for range 60 {
			c := drawCriteria(r)
			n, err := q.CountJobs(c)
			if want := l.wantJobs(c); err != nil || n != uint64(len(want)) {
				t.Errorf("%d jobs by %+v, want %d: %v", n, c, len(want), err)
			}
			want := map[jobdb.DecisionCount]uint64{}
			for _, d := range l.wantDecisions(c) {
				want[jobdb.DecisionCount{Requeue: d.Requeue, Shadow: d.Shadow, Acted: d.Acted, Code: d.Code, Policy: d.Policy, Rule: d.Rule}]++
			}
			counts, err := q.CountDecisions(c)
			if err != nil {
				return err
			}
			got := map[jobdb.DecisionCount]uint64{}
			for _, d := range counts {
				n := d.Count
				d.Count = 0
				got[d] = n
			}
			equal(t, fmt.Sprintf("decisions by %+v", c), want, got)
		}
		return nil
	})
}

var errAnotherPage = errors.New("a list without a limit has another page")

// inPages reads a list page by page, with tokens between them.
func inPages(q jobdb.Queries, c *jobdb.Criteria, p jobdb.Page, name string, read query, limit int) (all []string, err error) {
	p.Limit = limit
	for {
		names, next, err := read(q, c, p)
		all = append(all, names...)
		token := p.Token(name, c, next)
		if err != nil || token == "" {
			return all, err
		}
		if len(names) != limit {
			return nil, fmt.Errorf("a page of %d rows, want %d", len(names), limit)
		}
		other := *c
		other.Queue += "x"
		if _, err := p.Continue(name, &other, token); err == nil {
			return nil, fmt.Errorf("the token of another list was taken")
		}
		if p, err = p.Continue(name, c, token); err != nil {
			return nil, err
		}
	}
}

// testTop: the counts of effective decisions are those of a plain count.
func testTop(t *testing.T, db Database, r *rand.Rand, l *listed) {
	view(t, db.Reader, func(q jobdb.Queries) error {
		for range 40 {
			c := drawCriteria(r)
			c.States, c.Waiting = nil, false
			for _, by := range jobdb.Tops {
				want := map[string]jobdb.Top{}
				jobs := map[string]bool{}
				for _, d := range l.wantDecisions(c) {
					if !d.Acted {
						continue
					}
					v := l.runs[slices.IndexFunc(l.runs, func(r *jobdb.Run) bool { return r.RunID == d.RunID })]
					rule := ""
					if d.Rule != "" {
						rule = d.Policy + "/" + d.Rule
					}
					key := map[string]string{"queue": d.Queue, "set": d.JobSet, "policy": d.Policy, "rule": rule, "node": cmp.Or(v.Error.Node, v.Node), "category": v.Error.Category}[by]
					n := want[key]
					n.Key = key
					if d.Requeue {
						n.Retries++
					} else {
						n.Failures++
					}
					if !jobs[key+"/"+d.JobID] {
						jobs[key+"/"+d.JobID] = true
						n.Jobs++
					}
					want[key] = n
				}
				got, err := q.Top(by, c, 0, true)
				if err != nil {
					return err
				}
				counted := map[string]jobdb.Top{}
				for i, n := range got {
					counted[n.Key] = n
					if i > 0 && n.Retries > got[i-1].Retries {
						t.Errorf("top by %s: %v after %v", by, n, got[i-1])
					}
				}
				equal(t, fmt.Sprintf("top by %s, %+v", by, c), want, counted)
				without := slices.Clone(got)
				for i := range without {
					without[i].Jobs = 0
				}
				kept, err := q.Top(by, c, 0, false)
				equal(t, fmt.Sprintf("top by %s, %+v, without jobs", by, c), without, kept)
				if err != nil {
					return err
				}
				if len(got) > 1 {
					if one, err := q.Top(by, c, 1, true); err != nil || len(one) != 1 || one[0] != got[0] {
						t.Errorf("the first one by %s: %v, %v, want %v", by, one, err, got[0])
					}
				}
			}
		}
		return nil
	})
}

package model

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
)

// mustOfGroups is what two thousand histories of groups reach at least once each.
var mustOfGroups = []string{
	"group: bound", "group: held at its submit", "group: released", "group: restarted", "group: held at a restart",
	"group: live run told to stop", "group: stopped", "group: member too late", "group: member cancelled",
	"group: unit succeeded", "group: unit succeeded by a rule", "group: released after others run", "group: succeeded before all of it", "group: always", "group: success of a run told to stop", "group: JobSucceeded of a member",
	"group: restart refused", "group: unable to restart", "group: leave after halt", "group: leave while paused",
	"group: rule matched a message", "forgotten: group",
	"a failure proves the end of its pod", "FailUnit for DeadlineExceeded", "a member that failed for good uses up retryLimit",
	"group: asked while paused", "group: restart after a pause", "group: blocked by another member",
	"group: successor", "group: successor of a gang", "group: the name of a successor was taken", "finding: not in a successor either",
	"finding: " + BadGroupName, "finding: " + NoGroupPolicy, "finding: " + UnknownPolicy, "finding: " + AnotherPolicy,
	"finding: " + UnknownPart, "finding: " + UnknownReplica, "finding: " + UnknownIndex, "finding: " + IndexTaken,
	"finding: " + GangNotOneUnit, "finding: " + GangParallelism,
	"code: GangRetry", "code: GroupRestart", "code: GroupEnded", "code: UnitLimit", "code: GangFail",
	"shadow: GangRetry", "shadow: GroupRestart",
	"group: RestartGroup BackoffLimitExceeded", "group: RestartGroup PodFailurePolicy", "group: RestartGroup DeadlineExceeded",
	"group: RestartGroup FailedIndexes", "group: RestartGroup MaxFailedIndexesExceeded",
	"group: RestartPart BackoffLimitExceeded", "group: RestartUnit BackoffLimitExceeded", "group: Leave BackoffLimitExceeded",
	"group: Halt BackoffLimitExceeded", "group: FailGroup BackoffLimitExceeded",
	"group: Leave MemberCancelled without a run", "group: FailGroup MemberCancelled without a run", "group: Halt MemberCancelled without a run",
	"group: FailGroup FailedIndexes without a run", "group: RestartGroup FailedIndexes without a run",
	"finding: gang of another group", "group: a failure decided before an earlier one",
	"group ended: Succeeded ", "group ended: Failed " + BackoffLimitExceeded, "group ended: Failed " + ReachedMaxRestarts,
	"group ended: Failed " + Exhausted, "group ended: Halted " + BackoffLimitExceeded,
}

// TestSometimesOfGroups runs many histories of groups and asks that everything happens in some, and
// that every feature makes a difference in some: their records would be others without it.
func TestSometimesOfGroups(t *testing.T) {
	t.Parallel()
	const seeds = 2000
	seen := map[string]int{}
	kinds := map[Kind]int{}
	messages, matters := 0, features{}
	start := time.Now()
	for seed := range uint64(seeds) {
		h := GenerateGroups(seed, GroupOptions{Newest: SuccessorsVersion})
		all, m := h.Run()
		matters.try(h, all)
		messages += len(h.Messages)
		for _, rs := range all {
			for _, r := range rs {
				kinds[r.Kind]++
			}
		}
		for name, n := range m.Seen {
			seen[name] += n
		}
	}
	t.Logf("%d histories, %d messages, %v, %.0f histories/s", seeds, messages, kinds, seeds/time.Since(start).Seconds())
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%7d %s", seen[name], name)
	}
	for _, name := range mustOfGroups {
		if seen[name] == 0 {
			t.Errorf("never seen: %s", name)
		}
	}
	for _, f := range featuresOfGroups() {
		if n := matters[f.name]; n < enough {
			t.Errorf("%d histories would be others without %s, want %d", n, f.name, enough)
		}
	}
}

// TestSameSeedOfGroups asks that a seed gives the same history, and that the model
// says of it what it said while the history was made.
func TestSameSeedOfGroups(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		o := GroupOptions{Drain: seed%5 == 0, Steady: seed%7 == 0, Large: seed%50 == 0, Newest: newestOf(seed)}
		a, b := GenerateGroups(seed, o), GenerateGroups(seed, o)
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("seed %d: histories differ", seed)
		}
		first, _ := a.Run()
		again, _ := b.Run()
		if !reflect.DeepEqual(first, again) {
			t.Fatalf("seed %d: records differ", seed)
		}
	}
}

// newestOf is mostly version 4, sometimes 3.
func newestOf(seed uint64) int {
	if seed%3 == 0 {
		return GroupsVersion
	}
	return SuccessorsVersion
}

// laws follows the records of a history, and reports what may not be.
type laws struct {
	members map[string]*followed // by job
	ended   map[string]bool      // groups
	used    map[string]int       // counted restarts, by group
}

// followed is what the records said of a member.
type followed struct {
	stopped    map[string]int // runs told to stop, with the generation that replaced them
	generation int
}

func (l *laws) follow(r Record) error {
	key := strings.Join([]string{r.Queue, r.JobSet, r.Group}, "\x00")
	f := l.members[r.JobID]
	if f == nil {
		f = &followed{stopped: map[string]int{}}
		l.members[r.JobID] = f
	}
	decision := r.Kind == JobRequeued || r.Kind == JobFailed
	switch {
	case r.Kind == GroupBound:
		l.ended[key], l.used[key] = false, 0
	case r.Kind == GroupEnded:
		if l.ended[key] {
			return fmt.Errorf("a group ended twice")
		}
		l.ended[key] = true
	case r.Group != "" && l.ended[key] && (r.Kind == MemberRestart || r.Kind == MemberReleased || r.Kind == JobRequeued || r.Kind == UnitEnded):
		return fmt.Errorf("a group that ended starts something")
	}
	switch {
	case r.Kind == MemberRestart:
		if r.Generation <= f.generation {
			return fmt.Errorf("generation %d after %d", r.Generation, f.generation)
		}
		f.generation = r.Generation
		f.stopped[r.RunID] = r.Generation
	case decision && r.Group != "":
		if g, old := f.stopped[r.RunID]; old && r.Code != GroupRestart && r.Code != GroupIsOver {
			return fmt.Errorf("a run that generation %d replaced is decided by itself", g)
		}
	}
	if r.GroupAction != "" {
		rule := r.GroupRule + r.Rule
		if r.Kind != UnitEnded {
			rule = r.GroupRule
		}
		if strings.HasPrefix(r.GroupAction, "Restart") && rule != "restarts" && !r.Shadow && r.RestartsUsed > l.used[key] {
			if r.RestartsUsed != l.used[key]+1 || r.RestartsUsed > r.MaxRestarts {
				return fmt.Errorf("restarts used: %d, then %d of %d", l.used[key], r.RestartsUsed, r.MaxRestarts)
			}
			l.used[key] = r.RestartsUsed
		}
		if r.RestartsUsed != l.used[key] {
			return fmt.Errorf("restarts used: %d, but %d were counted", r.RestartsUsed, l.used[key])
		}
	}
	return nil
}

// forget drops what is kept for groups and jobs that the model forgot. (A group of the
// same name may be bound since, in silence.)
func (l *laws) forget(m *Model) {
	for key := range l.ended {
		if !slices.ContainsFunc(m.groups, func(g *group) bool { return g.key() == key && g.ended }) {
			delete(l.ended, key)
			if !slices.ContainsFunc(m.groups, func(g *group) bool { return g.key() == key && g.counted > 0 }) {
				delete(l.used, key)
			}
		}
	}
	for id := range l.members {
		if j := m.jobs[id]; j == nil || j.member == nil {
			delete(l.members, id)
		}
	}
}

// TestLawsOfGroups asks of histories of groups what holds for every one.
func TestLawsOfGroups(t *testing.T) {
	t.Parallel()
	for seed := range uint64(600) {
		o := GroupOptions{Drain: seed%2 == 0, Steady: seed%4 < 2, Large: seed%100 == 0, Newest: newestOf(seed)}
		h := GenerateGroups(seed, o)
		m := New(h.Policies)
		l := laws{members: map[string]*followed{}, ended: map[string]bool{}, used: map[string]int{}}
		changes := h.Changes
		for i, msg := range h.Messages {
			for len(changes) > 0 && changes[0].Before == i {
				m.Use(changes[0].Policies)
				changes = changes[1:]
			}
			for _, v := range h.Versions {
				if v.Before == i {
					m.UseVersion(v.Number)
				}
			}
			records := m.Step(msg)
			l.forget(m)
			for _, r := range records {
				if err := l.follow(r); err != nil {
					t.Fatalf("seed %d, message %d: %v: %+v", seed, i, err, r)
				}
			}
			for _, g := range m.groups {
				if o.Steady {
					if err := parallelism(g); err != nil {
						t.Fatalf("seed %d, message %d: %v", seed, i, err)
					}
				}
				for _, mem := range g.members() {
					// (A member that came while its queue was in shadow is not stopped.)
					if o.Steady && g.ended && mem.over == "" {
						t.Fatalf("seed %d, message %d: %s ended, %s is not over", seed, i, g.name, mem.job.id)
					}
				}
			}
		}
		if !o.Drain {
			continue
		}
		for _, g := range m.groups {
			for _, mem := range g.members() {
				if !g.ended || o.Steady && mem.over == "" {
					t.Errorf("seed %d: the history is over, but not %s of %s (%d messages, halted %t)", seed, mem.job.id, g.name, len(h.Messages), g.halted)
				}
			}
		}
	}
}

func parallelism(g *group) error {
	for _, u := range g.units() {
		n := u.count((*member).started)
		if u.part.Parallelism > 0 && n > u.part.Parallelism && !g.ended {
			return fmt.Errorf("%s: %s %d has %d of %d started", g.name, u.part.Name, u.replica, n, u.part.Parallelism)
		}
	}
	return nil
}

// BenchmarkGroups measures how long the model takes for a history.
func BenchmarkGroups(b *testing.B) {
	for _, large := range []bool{false, true} {
		b.Run(fmt.Sprintf("large=%t", large), func(b *testing.B) {
			var histories []History
			for seed := range uint64(50) {
				histories = append(histories, GenerateGroups(seed, GroupOptions{Large: large}))
			}
			b.ResetTimer()
			for i := range b.N {
				histories[i%len(histories)].Run()
			}
		})
	}
}

// TestYAMLOfGroups shows a group policy as it is written, and asks that all that are
// generated are YAML.
func TestYAMLOfGroups(t *testing.T) {
	t.Parallel()
	p := Policies{Groups: []GroupPolicy{
		{
			Name: "train", MaxRestarts: new(3), Backoff: Backoff{InitialDelayMs: new(int64(1000))}, Completed: "Keep",
			Rules: []GroupRule{{
				Name: "lost", Action: "RestartGroup", CountsTowardMax: new(false), Limit: new(5),
				OnReasons: []string{PodFailurePolicy}, OnMessage: "a|b", Parts: []string{"main"},
			}},
			RestartStrategy: "BlockingRecreate",
			Restarts:        &Restarts{Limit: new(1), On: "Always", Backoff: Backoff{Constant: true}},
			Parts: []GroupPart{{
				Name: "main", Replicas: new(2), Members: new(8), MinMembers: new(7), Parallelism: new(2), RetryLimit: new(6),
				OnMemberFailure: "Continue", MaxFailedMembers: new(1),
			}, {Name: "next", After: []string{"main"}, Restarts: &Restarts{}}},
		},
		{Name: "flow", Rules: []GroupRule{}},
		{Name: "open"},
	}}
	want := `apiVersion: refloat.github.io/v1
kind: GroupPolicy
metadata: {name: train}
spec:
  maxRestarts: 3
  backoff: {initialDelay: 1s}
  completed: Keep
  restartStrategy: BlockingRecreate
  unit: {restarts: {limit: 1, on: Always, backoff: {type: Constant}}}
  rules:
  - {name: lost, action: RestartGroup, countsTowardsMax: false, limit: 5, onReasons: [PodFailurePolicy], onMessage: {pattern: "a|b"}, parts: [main]}
  parts:
  - {name: main, replicas: 2, members: 8, minMembers: 7, parallelism: 2, retryLimit: 6, onMemberFailure: Continue, maxFailedMembers: 1}
  - {name: next, after: [main], restarts: {}}
---
apiVersion: refloat.github.io/v1
kind: GroupPolicy
metadata: {name: flow}
spec:
  rules: []
---
apiVersion: refloat.github.io/v1
kind: GroupPolicy
metadata: {name: open}
spec: {}
`
	if diff := cmp.Diff(want, string(p.YAML(false)[0].Data)); diff != "" {
		t.Errorf("YAML:\n%s", diff)
	}
	for seed := range uint64(100) {
		h := GenerateGroups(seed, GroupOptions{Newest: SuccessorsVersion})
		for _, p := range append([]Change{{Policies: h.Policies}}, h.Changes...) {
			for _, file := range p.Policies.YAML(true) {
				var doc map[string]any
				if err := yaml.Unmarshal(file.Data, &doc); err != nil || doc["kind"] == nil {
					t.Fatalf("seed %d: %s: %v\n%s", seed, file.Name, err, file.Data)
				}
			}
		}
	}
}

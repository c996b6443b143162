package armadabox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/test/e2e"
)

// run is a scenario that runs.
type run struct {
	*world
	t     *testing.T
	ctx   context.Context
	ids   map[string][]string // job name → ids
	seen  map[string]*seenJob // job id →
	files string              // directory of the scenario's files
	scenario
}

const (
	defaultLimit = 90 * time.Second
	knownLimit   = 40 * time.Second // of a scenario that is known to fail
)

func name(s string, n int) string { return s + "-" + strconv.Itoa(n) }

// try runs a scenario to its end.
func (w *world) try(t *testing.T, sc scenario) {
	if sc.Long && !longTier() {
		t.Skip("of the long tier: make e2e-armada LONG=1")
	}
	limit := sc.Limit.or(defaultLimit)
	if sc.Known != "" {
		limit = sc.Limit.or(knownLimit)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	began := time.Now()
	r := &run{world: w, t: t, ctx: ctx, scenario: sc}
	err := r.all()
	t.Logf("%s: %v", sc.About, time.Since(began).Round(100*time.Millisecond))
	switch {
	case sc.Known != "" && err == nil:
		t.Errorf("it passes now: remove its mark %q", sc.Known)
	case sc.Known != "":
		t.Skipf("known: %s (%v)", sc.Known, err)
	case err != nil:
		t.Errorf("%v\n%s", err, r.story())
	}
}

func (r *run) all() error {
	if err := r.begin(); err != nil {
		return err
	}
	for i, s := range r.Steps {
		if err := r.step(s); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return r.judge()
}

// begin creates the queue and submits the jobs.
func (r *run) begin() error {
	r.ids = map[string][]string{}
	for _, queue := range r.queues() {
		if _, err := r.Armadactl(r.ctx, "create", "queue", queue, "--priority-factor", "1"); err != nil {
			return err
		}
	}
	if err := r.write(); err != nil {
		return err
	}
	now := r.Random.jobs()
	for _, j := range r.Jobs {
		if !j.Later {
			now = append(now, j)
		}
	}
	return r.submit(now)
}

// write writes the files of the scenario.
func (r *run) write() error {
	r.files = r.t.TempDir()
	for name, doc := range r.Files {
		text, err := json.Marshal(doc)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(r.files, name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) set() string { return r.Name + "-set" }

var submitted = regexp.MustCompile(`(?m)^Submitted job with id (\w+)`)

// submit submits jobs with the real armadactl.
func (r *run) submit(jobs []job) error {
	for _, queue := range r.queues() {
		here := slices.DeleteFunc(slices.Clone(jobs), func(j job) bool { return r.queueOf(j) != queue })
		if err := r.submitTo(queue, here); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) submitTo(queue string, jobs []job) error {
	if len(jobs) == 0 {
		return nil
	}
	var all []any
	var names []string
	for _, j := range jobs {
		for range max(j.Count, 1) {
			all = append(all, r.pod(j))
			names = append(names, j.Name)
		}
	}
	text, err := json.Marshal(map[string]any{"queue": queue, "jobSetId": r.set(), "jobs": all})
	if err != nil {
		return err
	}
	file := filepath.Join(r.t.TempDir(), "jobs.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	var out string
	unknown := "could not find queue" // the server has not heard of it
	if err := e2e.Until(r.ctx, func() (bool, error) {
		out, err = r.Armadactl(r.ctx, "submit", file)
		return !strings.Contains(out, unknown), nil
	}); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	ids := submitted.FindAllStringSubmatch(out, -1)
	if len(ids) != len(all) {
		return fmt.Errorf("armadactl submit named %d jobs of %d:\n%s", len(ids), len(all), out)
	}
	for i, id := range ids {
		r.ids[names[i]] = append(r.ids[names[i]], id[1])
	}
	return nil
}

// pod is a job as armadactl submits it.
func (r *run) pod(j job) any {
	annotations := maps.Clone(j.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	for key, value := range j.Sim {
		annotations["sim/"+key] = value
	}
	resources := map[string]string{"cpu": firstOf(j.CPU, "100m"), "memory": firstOf(j.Memory, "100Mi")}
	spec := map[string]any{
		"terminationGracePeriodSeconds": max(j.Grace, 1),
		"restartPolicy":                 "Never",
		"containers": []any{map[string]any{
			"name": "main", "image": "none", "resources": map[string]any{"requests": resources, "limits": resources},
		}},
	}
	if j.Class != "" {
		spec["priorityClassName"] = j.Class
	}
	if hosts := r.hosts(j.Executor); hosts != nil {
		spec["affinity"] = map[string]any{"nodeAffinity": map[string]any{"requiredDuringSchedulingIgnoredDuringExecution": map[string]any{
			"nodeSelectorTerms": []any{map[string]any{"matchExpressions": []any{
				map[string]any{"key": "kubernetes.io/hostname", "operator": "In", "values": hosts},
			}}},
		}}}
	}
	return map[string]any{"namespace": "default", "priority": j.Priority, "annotations": annotations, "podSpec": spec}
}

// hosts are the nodes that a job may run on; nil: all.
func (r *run) hosts(executor string) (hosts []string) {
	if executor == "any" {
		return nil
	}
	for name := range strings.FieldsSeq(firstOf(executor, "main")) {
		for n := range r.Executors[name].Nodes {
			hosts = append(hosts, fmt.Sprintf("%s-node-%02d", name, n))
		}
	}
	return hosts
}

func firstOf(values ...string) string { return first("", values...) }

// until looks at the job set again and again. A database that does not answer
// may be part of the scenario.
func (r *run) until(what string, holds func() bool) error {
	var last error
	err := e2e.Until(r.ctx, func() (bool, error) {
		if dead := r.Died(); dead != nil {
			return false, fmt.Errorf("ended by themselves: %q", dead)
		}
		if last = r.look(); last != nil {
			return false, nil
		}
		return holds(), nil
	})
	if err != nil {
		return fmt.Errorf("until %s: %w", what, errors.Join(err, last))
	}
	return nil
}

func (r *run) look() (err error) {
	ctx, cancel := context.WithTimeout(r.ctx, 5*time.Second)
	defer cancel()
	r.seen, err = look(ctx, r.db, r.set())
	return err
}

// one is the first job of a name, as last seen.
func (r *run) one(name string) *seenJob { return r.of(name)[0] }

// of are the jobs of a name, as last seen.
func (r *run) of(name string) (jobs []*seenJob) {
	for _, id := range r.ids[name] {
		j := r.seen[id]
		if j == nil {
			j = &seenJob{ID: id, State: "absent"}
		}
		jobs = append(jobs, j)
	}
	if jobs == nil {
		jobs = append(jobs, &seenJob{State: "absent"})
	}
	return jobs
}

// story is what the tables said last of the scenario's jobs.
func (r *run) story() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.ids)) {
		for _, j := range r.of(name) {
			fmt.Fprintf(&b, "%s %s: %s, priority %d\n", name, j.ID, j.State, j.Priority)
			for i, v := range j.Runs {
				fmt.Fprintf(&b, "  run %d on %s: %s, leased %s, ended %s, preemption requested: %t\n", i+1, v.Node, v.State, clock(v.Leased), clock(v.Ended), v.Requested)
			}
			for _, d := range j.Decisions {
				fmt.Fprintf(&b, "  decision on %s: %s, retry after %s, acted: %t\n", d.Run, d.Code, clock(d.RetryAfter), d.Acted)
			}
		}
	}
	return b.String()
}

func clock(t time.Time) string {
	if t.Unix() <= 0 {
		return "-"
	}
	return t.Format("15:04:05.000")
}

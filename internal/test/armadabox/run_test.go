package armadabox_test

import (
	"bytes"
	"cmp"
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
	"github.com/refloat/refloat/internal/test/scenario"
)

// run is a scenario that runs.
type run struct {
	*world
	t     *testing.T
	ctx   context.Context
	ids   map[string][]string       // job name → ids
	seen  map[string]*scenario.Seen // job id →
	files string                    // directory of the scenario's files
	scenario.Scenario
}

const (
	defaultLimit = 90 * time.Second
	knownLimit   = 40 * time.Second // of a scenario that is known to fail
)

func name(s string, n int) string { return s + "-" + strconv.Itoa(n) }

// try runs a scenario to its end.
func (w *world) try(t *testing.T, sc scenario.Scenario) {
	if sc.Long && !longTier() {
		t.Skip("of the long tier: make e2e-armada LONG=1")
	}
	limit := sc.Limit.Or(defaultLimit)
	if sc.Known != "" {
		limit = sc.Limit.Or(knownLimit)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	began := time.Now()
	r := &run{world: w, t: t, ctx: ctx, Scenario: sc}
	err := r.all()
	t.Logf("%s: %v", sc.About, time.Since(began).Round(100*time.Millisecond))
	switch {
	case sc.Known != "" && err == nil:
		t.Errorf("it passes now: remove its mark %q", sc.Known)
	case sc.Known != "":
		t.Skipf("known: %s (%v)", sc.Known, err)
	case err != nil:
		t.Errorf("%v\n%s", err, r.jobs())
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
	var found error
	err := r.until("all is as expected", func() bool {
		found = r.Judge(r.jobs())
		return found == nil
	})
	if err != nil {
		return errors.Join(found, err)
	}
	return r.jobs().Always()
}

// jobs are all jobs, as last seen.
func (r *run) jobs() scenario.Jobs {
	jobs := scenario.Jobs{}
	for name := range r.ids {
		jobs[name] = r.of(name)
	}
	return jobs
}

// begin creates the queue and submits the jobs.
func (r *run) begin() error {
	r.ids = map[string][]string{}
	for _, queue := range r.Queues() {
		if _, err := r.Armadactl(r.ctx, "create", "queue", queue, "--priority-factor", "1"); err != nil {
			return err
		}
	}
	if err := r.write(); err != nil {
		return err
	}
	if r.Manifest != "" {
		return r.submitConverted()
	}
	now := r.Random.Jobs()
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

// unknownQueue is what the server says until it has heard of a queue.
const unknownQueue = "could not find queue"

var submitted = regexp.MustCompile(`(?m)^Submitted job with id (\w+)`)

// submit submits jobs with the real armadactl.
func (r *run) submit(jobs []scenario.Job) error {
	for _, queue := range r.Queues() {
		here := slices.DeleteFunc(slices.Clone(jobs), func(j scenario.Job) bool { return r.QueueOf(j) != queue })
		if err := r.submitTo(queue, here); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) submitTo(queue string, jobs []scenario.Job) error {
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
	text, err := json.Marshal(map[string]any{"queue": queue, "jobSetId": r.Set(), "jobs": all})
	if err != nil {
		return err
	}
	return r.submitFile(text, names)
}

// submitConverted submits the jobs that the scenario's manifest becomes.
func (r *run) submitConverted() error {
	c, err := r.Convert()
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := c.Submits[0].WriteYAML(&text); err != nil {
		return err
	}
	return r.submitFile(text.Bytes(), c.Names)
}

// submitFile submits a file of jobs with these names.
func (r *run) submitFile(text []byte, names []string) error {
	file := filepath.Join(r.t.TempDir(), "jobs.yaml")
	err := os.WriteFile(file, text, 0o600)
	if err != nil {
		return err
	}
	var out string
	if err := e2e.Until(r.ctx, func() (bool, error) {
		out, err = r.Armadactl(r.ctx, "submit", file)
		return !strings.Contains(out, unknownQueue), nil
	}); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	ids := submitted.FindAllStringSubmatch(out, -1)
	if len(ids) != len(names) {
		return fmt.Errorf("armadactl submit named %d jobs of %d:\n%s", len(ids), len(names), out)
	}
	for i, id := range ids {
		r.ids[names[i]] = append(r.ids[names[i]], id[1])
	}
	return nil
}

// pod is a job as armadactl submits it.
func (r *run) pod(j scenario.Job) any {
	annotations := maps.Clone(j.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	for key, value := range j.Sim {
		annotations["sim/"+key] = value
	}
	resources := map[string]string{"cpu": cmp.Or(j.CPU, "100m"), "memory": cmp.Or(j.Memory, "100Mi")}
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
	for name := range strings.FieldsSeq(cmp.Or(executor, "main")) {
		for n := range r.Executors[name].Nodes {
			hosts = append(hosts, fmt.Sprintf("%s-node-%02d", name, n))
		}
	}
	return hosts
}

// until looks at the job set again and again. A database that does not answer
// may be part of the scenario.
func (r *run) until(what string, holds func() bool) error {
	var last error
	err := e2e.Until(r.ctx, func() (bool, error) {
		if dead := r.Died(); dead != nil {
			return false, fmt.Errorf("ended by themselves: %q", dead)
		}
		if last = r.observe(); last != nil {
			return false, nil
		}
		if err := r.jobs().Anytime(); err != nil {
			return false, err
		}
		return holds(), nil
	})
	if err != nil {
		return fmt.Errorf("until %s: %w", what, errors.Join(err, last))
	}
	return nil
}

func (r *run) observe() (err error) {
	ctx, cancel := context.WithTimeout(r.ctx, 5*time.Second)
	defer cancel()
	r.seen, err = scenario.ReadJobs(ctx, r.db, r.Set())
	return err
}

// one is the first job of a name, as last seen.
func (r *run) one(name string) *scenario.Seen { return r.of(name)[0] }

// of are the jobs of a name, as last seen.
func (r *run) of(name string) (jobs []*scenario.Seen) {
	for _, id := range r.ids[name] {
		j := r.seen[id]
		if j == nil {
			j = &scenario.Seen{ID: id, State: "absent"}
		}
		jobs = append(jobs, j)
	}
	if jobs == nil {
		jobs = append(jobs, &scenario.Seen{State: "absent"})
	}
	return jobs
}

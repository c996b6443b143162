package writer_test

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/refloat/refloat/internal/armada/writer"
	"github.com/refloat/refloat/internal/test/scenario"
	"github.com/refloat/refloat/internal/test/standin"
)

// TestRows compares the stand-in for Armada's scheduler with scenarios observed under a
// real one (internal/test/armadabox): each scenario that the stand-in supports must end
// the same way. The others are skipped with a reason.
func TestRows(t *testing.T) {
	t.Parallel()
	suites, err := scenario.Load(filepath.Join("..", "..", "test", "armadabox", "testdata"))
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, s := range suites {
		if s.Name != "holdback" {
			continue
		}
		for _, row := range s.Scenarios {
			if err := tellable(s, row); err != nil {
				t.Logf("left out %s: the stand-in cannot be told: %v", row.Name, err)
				continue
			}
			tried++
			t.Run(row.Name, func(t *testing.T) {
				t.Parallel()
				tryRow(t, s, row)
			})
		}
	}
	if tried < 10 {
		t.Errorf("tried %d rows, want at least 10", tried)
	}
}

// tellable returns what the stand-in does not support in a row.
func tellable(s scenario.Suite, row scenario.Scenario) error {
	if row.Random != nil || row.Files != nil || len(row.Jobs) == 0 {
		return fmt.Errorf("it is about programs")
	}
	if row.Manifest != "" {
		return fmt.Errorf("it asks refloatctl about a manifest")
	}
	for _, j := range row.Jobs {
		if j.Count > 1 || j.CPU != "" || s.Armada.Executors[j.Executor].Nodes > 1 {
			return fmt.Errorf("job %s: its number, its size or where it may run", j.Name)
		}
		if j.Annotations["armadaproject.io/gangId"] != "" {
			return fmt.Errorf("job %s: a gang", j.Name)
		}
		if _, err := outcomesOf(j); err != nil {
			return fmt.Errorf("job %s: %w", j.Name, err)
		}
	}
	for _, st := range row.Steps {
		if st.When != nil && st.When.Over > 0 || st.Query != "" || st.Do != "" && userDoes(st.Do) == nil {
			return fmt.Errorf("%s%s", st.Do, st.Query)
		}
	}
	return nil
}

// userDoes is what a user does with armadactl; nil: not supported by the stand-in.
func userDoes(command string) func(w *standin.World, id string) {
	f := strings.Fields(command)
	if len(f) < 5 || f[0] != "armadactl" {
		return nil
	}
	switch strings.Join(f[1:3], " ") {
	case "cancel job":
		return (*standin.World).Cancel
	case "cancel job-set":
		return func(w *standin.World, id string) { w.CancelSet(id) }
	case "preempt job":
		return (*standin.World).Preempt
	case "reprioritize job":
		priority, err := strconv.ParseUint(f[len(f)-1], 10, 32)
		if err != nil {
			return nil
		}
		return func(w *standin.World, id string) { w.Reprioritise(id, uint32(priority)) }
	}
	return nil
}

// outcomesOf returns the outcomes that the annotations sim/… request.
func outcomesOf(j scenario.Job) (script []standin.Outcome, err error) {
	after := time.Duration(0)
	for key, value := range j.Sim {
		switch key {
		case "outcome", "category", "subcategory", "message":
		case "run-ms":
			ms, err := strconv.Atoi(value)
			if err != nil {
				return nil, err
			}
			after = time.Duration(ms) * time.Millisecond
		default:
			return nil, fmt.Errorf("sim/%s", key)
		}
	}
	for name := range strings.SplitSeq(j.Sim["outcome"], ";") {
		var o standin.Outcome
		kind, code, _ := strings.Cut(name, ":")
		switch kind {
		case "", "success":
			o = standin.Succeed()
		case "exit":
			exit, err := strconv.ParseInt(code, 10, 32)
			if err != nil {
				return nil, err
			}
			o = standin.Fail(int32(exit))
		case "oom":
			o = standin.OOM()
		case "returned":
			o = standin.Returned()
		case "returned-notattempted":
			o = standin.NeverStarts()
		case "hang":
			o = standin.Forever()
		default:
			return nil, fmt.Errorf("the outcome %s", name)
		}
		if after != 0 {
			o = o.After(after)
		}
		script = append(script, o.In(j.Sim["category"], j.Sim["subcategory"]).WithMessage(j.Sim["message"]))
	}
	return script, nil
}

// tryRow runs a row on the stand-in.
func tryRow(t *testing.T, s scenario.Suite, row scenario.Scenario) {
	policies, err := s.Policies()
	if err != nil {
		t.Fatal(err)
	}
	var executors []standin.Executor
	for name, e := range s.Armada.Executors {
		x := standin.Executor{Name: name, DeleteFailed: true}
		for n := range e.Nodes {
			x.Nodes = append(x.Nodes, standin.Node{Name: node(name, n), Slots: 8})
		}
		executors = append(executors, x)
	}
	d := deploy(t, standin.Config{Executors: executors, LeasePeriod: time.Second}, writer.HoldBack, string(policies))
	db, err := pgxpool.New(t.Context(), d.URL())
	d.must(err)
	t.Cleanup(db.Close)
	ids := map[string]string{}
	for _, j := range row.Jobs {
		script, err := outcomesOf(j)
		d.must(err)
		job := standin.Job{
			Queue: row.QueueOf(j), Set: row.Set(), Priority: uint32(j.Priority), Preemptible: j.Class == "armada-preemptible",
			Annotations: j.Annotations, Script: script,
		}
		if j.Executor != "" {
			job.NodeSelector = map[string]string{"kubernetes.io/hostname": node(j.Executor, 0)}
		}
		ids[j.Name] = d.Submit(job)[0]
	}
	seen := func() scenario.Jobs {
		all, err := scenario.ReadJobs(t.Context(), db, row.Set())
		d.must(err)
		jobs := scenario.Jobs{}
		for name, id := range ids {
			jobs[name] = []*scenario.Seen{{ID: id, State: "absent"}}
			if j := all[id]; j != nil {
				jobs[name][0] = j
			}
		}
		return jobs
	}
	for _, st := range row.Steps {
		if m := st.When; m != nil {
			d.until(fmt.Sprint(*m), func() bool { return m.Holds(seen()[m.Job]) })
			for range int(time.Duration(m.Stays).Seconds()) {
				d.step()
				if !m.Holds(seen()[m.Job]) {
					t.Fatalf("it does not stay so: %+v\n%v", *m, seen())
				}
			}
		}
		if do := userDoes(st.Do); do != nil {
			do(d.World, target(st.Do, ids))
		}
	}
	for range 300 { // seconds
		if err = row.Judge(seen()); err == nil {
			break
		}
		d.step()
	}
	if err != nil {
		t.Fatalf("%v\n%v", err, seen())
	}
	if err := seen().Always(); err != nil {
		t.Errorf("%v\n%v", err, seen())
	}
	d.right()
}

func node(executor string, n int) string { return fmt.Sprintf("%s-node-%02d", executor, n) }

// target returns the job that a command names, or any job of the job set.
func target(command string, ids map[string]string) (id string) {
	for name := range ids {
		id = ids[name]
		if strings.Contains(command+" ", "$"+name+" ") {
			return id
		}
	}
	return id
}

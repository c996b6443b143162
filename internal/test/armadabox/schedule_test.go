package armadabox_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/refloat/refloat/internal/simulate/scheduling"
	"github.com/refloat/refloat/internal/test/armadabox"
	"github.com/refloat/refloat/internal/test/e2e"
)

var update = flag.Bool("update", false, "write what Armada does in each situation, and the table of those in which Schedule differs")

const (
	answersFile = "testdata/situations.txt"
	tableFile   = "testdata/differences.md"
	docFile     = "../../../docs/internals/scheduling.md"
)

// answers are what Armada did, by situation.
func answers(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(answersFile)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, answer, _ := strings.Cut(strings.TrimSpace(line), " | ")
		all[name] = answer
	}
	return all
}

// TestSituations holds Schedule against what Armada did, and the table of differences against both.
func TestSituations(t *testing.T) {
	t.Parallel()
	armada := answers(t)
	var table strings.Builder
	table.WriteString("| situation | nodes | jobs | Armada | as documented | `LikeArmada` | because |\n|---|---|---|---|---|---|---|\n")
	for _, s := range situations {
		answer, ok := armada[s.name]
		if !ok {
			t.Errorf("%s: %s does not have it: run TestSituationsUnderArmada with -update", s.name, answersFile)
			continue
		}
		documented, like := s.schedule(t, false), s.schedule(t, true)
		if same := documented == answer && like == answer; same != (s.because == "") {
			t.Errorf("%s: Armada: %s; as documented: %s; LikeArmada: %s; because: %q", s.name, answer, documented, like, s.because)
		}
		if documented == answer && like == answer {
			continue // the table has those that differ
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %s | %s | %s |\n", s.name, s.nodes, s.jobs, answer, mark(documented, answer), mark(like, answer), s.because)
	}
	for name := range armada {
		if !named(name) {
			t.Errorf("%s: %q is not a situation", answersFile, name)
		}
	}
	text, err := os.ReadFile(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	if want := table.String(); *update {
		if err := os.WriteFile(tableFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(text) != want {
		t.Errorf("%s is old: run TestSituations with -update", tableFile)
	}
}

func named(name string) bool {
	for _, s := range situations {
		if s.name == name {
			return true
		}
	}
	return false
}

func mark(got, armada string) string {
	if got == armada {
		return "same"
	}
	return got
}

// Names of the first and the last pool, which bound a scheduling cycle: Armada schedules pool after pool.
const firstPool, lastPool = "first", "last"

// everySchedule is the time between two scheduling cycles, counted from the beginning of one; a cycle that takes longer than
// longestSchedule fails.
const everySchedule, longestSchedule = 40 * time.Second, 30 * time.Second

func pool(i int) string { return fmt.Sprintf("s%02d", i) }

// TestSituationsUnderArmada lets one scheduling cycle of a real Armada decide all situations: each has a pool, an executor and nodes of its own,
// and everything is in the database before the scheduler starts.
func TestSituationsUnderArmada(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a real Armada")
	}
	got := underArmada(t, armadabox.For(t), situations)
	if *update {
		record(t, got)
		return
	}
	want := answers(t)
	for _, s := range situations {
		t.Run(s.name, func(t *testing.T) {
			if got[s.name] != want[s.name] {
				t.Errorf("Armada: %s; %s: %s", got[s.name], answersFile, want[s.name])
			}
		})
	}
}

// underArmada returns what one scheduling cycle of a real Armada decides in each situation.
func underArmada(t *testing.T, box armadabox.Box, all []situation) map[string]string {
	t.Helper()
	pools := []any{map[string]any{"name": firstPool}}
	for i, s := range all {
		pools = append(pools, map[string]any{"name": pool(i), "protectedFractionOfFairShare": s.protected})
	}
	pools = append(pools, map[string]any{"name": lastPool})
	priorityClasses := map[string]any{}
	for _, c := range classes {
		priorityClasses[c.Name] = map[string]any{"priority": c.Priority, "preemptible": c.IsFairSharePreemptible}
	}
	began := time.Now()
	a := armadabox.Start(t, box, armadabox.Options{
		ExecutorTimeout: time.Hour, Partitions: 1,
		Scheduler: map[string]any{"schedulePeriod": everySchedule.String(), "cyclePeriod": "200ms"},
		Scheduling: map[string]any{
			"pools": pools, "priorityClasses": priorityClasses, "defaultPriorityClassName": defaultClass, "priorityClassNameOverride": defaultClass,
			"indexedNodeLabels": []string{hostname, "rack"}, "maxSchedulingDuration": longestSchedule.String(), "executorTimeout": "1h",
		},
		Prepare: func(a *armadabox.Armada) error { return prepare(t, a, all) },
	})
	db := connect(t, a)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	if err := e2e.Until(ctx, func() (bool, error) {
		if dead := a.Died(); dead != nil {
			return false, fmt.Errorf("ended by themselves: %q", dead)
		}
		var leased bool
		err := db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM runs WHERE pool = $1)`, lastPool).Scan(&leased)
		return leased, err
	}); err != nil {
		t.Fatalf("until the job of the last pool is leased: %v", err)
	}
	t.Logf("all decided after %v", time.Since(began).Round(time.Second))
	return decided(t, db, all)
}

func connect(t *testing.T, a *armadabox.Armada) *pgxpool.Pool {
	t.Helper()
	db, err := pgxpool.New(t.Context(), a.SchedulerDB+"&pool_max_conns=4")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// prepare creates the queues, and writes all executors, jobs and runs.
func prepare(t *testing.T, a *armadabox.Armada, list []situation) error {
	t.Helper()
	for name, factor := range factors {
		if out, err := a.Armadactl(t.Context(), "create", "queue", name, "--priority-factor", strconv.FormatFloat(factor, 'f', -1, 64)); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	return pgx.BeginFunc(t.Context(), connect(t, a), func(tx pgx.Tx) error {
		bound := situation{nodes: "n0 1", jobs: "a1 1"}
		all := map[string]situation{firstPool: bound, lastPool: bound}
		for i, s := range list {
			all[pool(i)] = s
		}
		for name, s := range all {
			if err := insert(t, tx, name, s.input(t)); err != nil {
				return err
			}
		}
		return nil
	})
}

func insert(t *testing.T, tx pgx.Tx, pool string, in *input) error {
	t.Helper()
	now := time.Now()
	if _, err := tx.Exec(t.Context(), `INSERT INTO executors (executor_id, last_request, last_updated) VALUES ($1, $2, $3)`, pool, executorRow(t, pool, in), now); err != nil {
		return err
	}
	for _, q := range in.queues {
		for _, j := range q.Jobs {
			if err := insertJob(t, tx, pool, q.Name, j, in.nodeByJob[j.ID]); err != nil {
				return err
			}
		}
	}
	return nil
}

func insertJob(t *testing.T, tx pgx.Tx, pool, queue string, j scheduling.Job, on string) error {
	t.Helper()
	_, err := tx.Exec(t.Context(), `INSERT INTO jobs (job_id, job_set, queue, user_id, submitted, priority, queued, queued_version, scheduling_info, scheduling_info_version, last_modified, validated, pools)
		VALUES ($1, $2, $3, 'u', $4, $5, $6, 1, $7, 1, now(), true, $8)`,
		jobID(pool, j), pool, queue, j.Submitted.UnixNano(), j.Priority, on == "", schedulingInfo(t, pool, j), []string{pool})
	if err != nil || on == "" {
		return err
	}
	var priority int32
	for _, c := range classes {
		if c.Name == j.PriorityClass {
			priority = c.Priority
		}
	}
	_, err = tx.Exec(t.Context(), `INSERT INTO runs (run_id, job_id, created, job_set, executor, node, queue, pool, running, pending, leased_timestamp, pending_timestamp, running_timestamp, scheduled_at_priority, last_modified)
		VALUES ($1, $2, $3, $4, $4, $5, $6, $4, true, true, $7, $7, $7, $8, now())`,
		runID(pool, j), jobID(pool, j), j.Started.UnixNano(), pool, on, queue, j.Started, priority)
	return err
}

// decided is what the first scheduling cycle decided in each situation.
func decided(t *testing.T, db *pgxpool.Pool, list []situation) map[string]string {
	t.Helper()
	var first time.Time
	if err := db.QueryRow(t.Context(), `SELECT leased_timestamp FROM runs WHERE pool = $1`, firstPool).Scan(&first); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for i, s := range list {
		leased, preempted := map[string]string{}, []string(nil)
		rows, err := db.Query(t.Context(), `SELECT job_id, node, run_id = job_id || '-run', failed OR preempted, coalesce(leased_timestamp, 'epoch'), coalesce(preempted_timestamp, terminated_timestamp, 'epoch') FROM runs WHERE pool = $1`, pool(i))
		if err != nil {
			t.Fatal(err)
		}
		var id, node string
		var before, lost bool
		var leasedAt, lostAt time.Time
		if _, err := pgx.ForEachRow(rows, []any{&id, &node, &before, &lost, &leasedAt, &lostAt}, func() error {
			id = strings.TrimPrefix(id, pool(i)+"-")
			next := first.Add(everySchedule - time.Second)
			switch {
			case !before && leasedAt.Before(next):
				leased[id] = node
			case before && lost && lostAt.Before(next):
				preempted = append(preempted, id)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		all[s.name] = outcome(leased, preempted)
	}
	return all
}

func record(t *testing.T, got map[string]string) {
	t.Helper()
	var b strings.Builder
	for _, s := range situations {
		fmt.Fprintf(&b, "%s | %s\n", s.name, got[s.name])
	}
	if err := os.WriteFile(answersFile, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

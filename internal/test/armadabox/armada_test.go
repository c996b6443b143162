package armadabox_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/refloat/refloat/internal/test/armadabox"
	"github.com/refloat/refloat/internal/test/e2e"
	"github.com/refloat/refloat/internal/test/pulsartest"
	"github.com/refloat/refloat/internal/test/scenario"
)

// sideBySide is how many scenarios share the Armada at a time: they wait most of the time.
const sideBySide = "16"

func TestMain(m *testing.M) {
	flag.Parse()
	for name, value := range map[string]string{"test.parallel": sideBySide, "datadriven-quiet": "true"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(pulsartest.Main(m))
}

// TestScenarios reads the scenarios and their policies, which needs no Armada.
func TestScenarios(t *testing.T) {
	t.Parallel()
	for _, s := range load(t) {
		if _, err := s.Policies(); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
}

func load(t *testing.T) []scenario.Suite {
	t.Helper()
	suites, err := scenario.Load("testdata")
	if err != nil {
		t.Fatal(err)
	}
	return suites
}

// TestArmada runs the scenarios of testdata on a real Armada: of each file those
// that do not disturb each other side by side, then the others one by one.
func TestArmada(t *testing.T) {
	suites := load(t)
	if testing.Short() {
		t.Skip("runs a real Armada")
	}
	box := armadabox.For(t)
	ours, err := e2e.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range suites {
		t.Run(s.Name, func(t *testing.T) { runSuite(t, box, ours, s) })
	}
}

// world is a running Armada with the suite that runs on it.
type world struct {
	*armadabox.Armada
	db *pgxpool.Pool
}

func runSuite(t *testing.T, box armadabox.Box, ours e2e.Programs, s scenario.Suite) {
	began := time.Now()
	policies, err := s.Policies()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "suite.yaml"), policies, 0o600); err != nil {
		t.Fatal(err)
	}
	w := &world{Armada: armadabox.Start(t, box, armadabox.Options{
		Ours:      ours,
		Executors: s.Armada.Executors, ExecutorTimeout: s.Armada.ExecutorTimeout.Or(30 * time.Second), Partitions: 3,
		Policies: dir, FollowArmada: s.Armada.FollowArmada, OursFirst: s.Armada.Ingester != "armada",
	})}
	db, err := pgxpool.New(t.Context(), w.SchedulerDB+"&pool_max_conns=4")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	w.db = db
	w.warmUp(t)
	t.Logf("Armada takes jobs after %v", time.Since(began).Round(time.Second))
	t.Run("side-by-side", func(t *testing.T) {
		if dir := s.Armada.Manifests; dir != "" {
			t.Run("every-manifest", func(t *testing.T) {
				t.Parallel()
				w.acceptsManifests(t, dir)
			})
		}
		for _, sc := range s.Scenarios {
			if !sc.Alone {
				t.Run(sc.Name, func(t *testing.T) {
					t.Parallel()
					w.try(t, sc)
				})
			}
		}
	})
	for _, sc := range s.Scenarios {
		if sc.Alone {
			t.Run(sc.Name, func(t *testing.T) { w.try(t, sc) })
		}
	}
	for _, name := range w.Died() {
		t.Errorf("%s ended by itself", name)
	}
}

// warmUp waits until a job succeeds: before, the scheduler has not heard of the nodes and rejects it.
func (w *world) warmUp(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for n := 1; ; n++ {
		r := &run{world: w, t: t, ctx: ctx, Scenario: scenario.Scenario{Name: name("warm-up", n), Jobs: []scenario.Job{{Name: "a", Sim: map[string]string{"run-ms": "1"}}}}}
		if err := r.begin(); err != nil {
			t.Fatal(err)
		}
		var state string
		if err := r.until("the first job ends", func() bool {
			state = r.one("a").State
			return state == "succeeded" || state == "failed"
		}); err != nil {
			t.Fatal(err)
		}
		if state == "succeeded" {
			return
		}
	}
}

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/test/pulsartest"
)

const (
	// limit bounds everything that a test waits for.
	limit = 4 * time.Minute
	// keepAlive is the broker's, by pulsartest: it gives up a connection after
	// twice that.
	keepAlive = 5 * time.Second
)

// scratch is a directory for what the tests share; TestMain removes it.
var scratch string

// programs are built once.
var programs = sync.OnceValues(func() (Programs, error) { return Build(context.Background(), scratch) })

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "e2e-")
	if err != nil {
		panic(err)
	}
	scratch = dir
	code := pulsartest.Main(m)
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// world is a deployment of a test's own on the shared broker.
type world struct {
	*Deployment
	t         *testing.T
	ctx       context.Context
	broker    *pulsartest.Broker
	processes []*Process
}

// newWorld makes the topics of a fresh namespace.
func newWorld(t *testing.T, partitions int) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("runs our programs on a real broker")
	}
	return newWorldOn(t, pulsartest.Shared(t), partitions)
}

func newWorldOn(t *testing.T, b *pulsartest.Broker, partitions int) *world {
	t.Helper()
	built, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	within := limit
	if os.Getenv("SCALE") != "" || os.Getenv("BROKERS") != "" {
		within *= 5
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, broker: b, Deployment: &Deployment{
		Programs: built, URL: b.URL, AdminURL: b.AdminURL, Namespace: b.Namespace(t), Dir: t.TempDir(),
		Policies: filepath.Join("..", "..", "..", "examples", "policies"),
	}}
	t.Cleanup(w.stop)
	if err := w.Create(ctx, partitions); err != nil {
		t.Fatal(err)
	}
	return w
}

// stop ends what still runs, and shows what failed programs said.
func (w *world) stop() {
	for _, p := range w.processes {
		p.Kill()
		if w.t.Failed() {
			w.t.Logf("%s said last:\n%s", p.Name, p.Tail())
		}
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) started(p *Process, err error) *Process {
	w.t.Helper()
	w.must(err)
	w.processes = append(w.processes, p)
	_, err = p.Await(w.ctx, "serving /metrics")
	w.must(err)
	return p
}

func (w *world) evaluator(name string, extra ...string) *Process {
	w.t.Helper()
	return w.started(w.Evaluator(name, nil, extra...))
}

func (w *world) ingester(name string) *Process {
	w.t.Helper()
	return w.started(w.Ingester(name))
}

// scrape is a program's metrics now.
func (w *world) scrape(p *Process) Metrics {
	w.t.Helper()
	m, err := p.Scrape(w.ctx)
	w.must(err)
	return m
}

// until waits for what metrics and logs say.
func (w *world) until(what string, holds func() bool) {
	w.t.Helper()
	if err := Until(w.ctx, func() (bool, error) { return holds(), nil }); err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

// live waits until the evaluators own so many partitions together.
func (w *world) live(partitions int, evaluators ...*Process) {
	w.t.Helper()
	w.until(fmt.Sprintf("%d partitions are live", partitions), func() bool {
		sum := 0.0
		for _, p := range evaluators {
			sum += w.scrape(p).Sum("refloat_partition_live")
		}
		return int(sum) == partitions
	})
}

func recordingFile(name string) string {
	return filepath.Join("..", "..", "..", "testdata", "recordings", name+".jsonl.gz")
}

// feed feeds a recording.
func (w *world) feed(name string, more ...string) {
	w.t.Helper()
	_, err := w.Ctl(w.ctx, append([]string{"feed", recordingFile(name)}, more...)...)
	w.must(err)
}

// settledAndRight waits until all is answered and checks it.
func (w *world) settledAndRight() Sum {
	w.t.Helper()
	w.must(w.Settled(w.ctx))
	sum, violations, err := w.Check(w.ctx, nil)
	w.must(err)
	for _, v := range violations {
		w.t.Error(v)
	}
	return sum
}

func (w *world) isTopic(topic eventlog.Topic, name string) bool {
	t, ok := topic.(interface{ Name() string })
	return ok && t.Name() == w.Topic(name)
}

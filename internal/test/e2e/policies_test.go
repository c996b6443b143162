package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/jobdb"
)

// TestPoliciesOnPulsar changes policies through two evaluators at once, one of which
// is killed, while a recording is fed: no change is lost, and after a kill of retries
// is in force no policy retries anything.
func TestPoliciesOnPulsar(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	files := w.Policies
	w.Policies = ""
	a, b := w.evaluator("a", "--api", "127.0.0.1:0"), w.evaluator("b", "--api", "127.0.0.1:0")
	w.ingester("one")
	w.live(3, a, b)
	ask := func(of string, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(w.ctx, w.Programs.Ctl, append(args, "--data", w.Data(of))...).CombinedOutput()
		if err != nil {
			t.Fatalf("refloatctl %s of %s: %v\n%s", strings.Join(args, " "), of, err, out)
		}
		return string(out)
	}
	ask("a", "apply", "-f", files)
	var wg sync.WaitGroup
	for _, of := range []string{"a", "b"} {
		for i := range 5 {
			name := fmt.Sprintf("%s%d", of, i)
			file := filepath.Join(t.TempDir(), name+".yaml")
			w.must(os.WriteFile(file, []byte("kind: Queue\nname: "+name+"\nretryPolicies: [infra]\n"), 0o600))
			wg.Go(func() { ask(of, "apply", "-f", file) })
		}
	}
	wg.Wait()
	if got := ask("b", "get", "queues"); strings.Count(got, `{"retryPolicies":["infra"]}`) != 11 { // and genomics
		t.Errorf("changes are lost:\n%s", got)
	}
	servers := address(w, "a") + "," + address(w, "b")
	newest := regexp.MustCompile(`The newest generation is (\d+)`)
	inForce := func() { // those that came too late have numbers too
		t.Helper()
		w.until("the newest generation is in force", func() bool {
			out, err := exec.CommandContext(w.ctx, w.Programs.Ctl, "get", "policies", "--server", servers).CombinedOutput()
			w.must(err)
			n := newest.FindSubmatch(out)
			return n != nil && strings.Count(string(out), ": generation "+string(n[1])+", since") == 3
		})
	}
	inForce()

	fed := make(chan error, 1)
	go func() {
		_, err := w.Ctl(w.ctx, "feed", recordingFile("plain"), "--pace", "30x")
		fed <- err
	}()
	w.until("something is answered", func() bool { return w.scrape(b).Sum("refloat_answered_messages_total") > 0 })
	a.Kill()
	killed := ask("b", "kill", "retries", "--all", "--reason", "INC-1")
	generation, err := strconv.ParseUint(regexp.MustCompile(`generation (\d+)`).FindStringSubmatch(killed)[1], 10, 64)
	w.must(err)
	w.live(3, b)
	inForce() // of a, nobody says anything any more
	w.must(<-fed)
	_, err = w.Ctl(w.ctx, "feed", recordingFile("retried")) // however early the other one ended, these are decided after the kill
	w.must(err)
	w.settledAndRight()

	db, err := app.ReadJobDB(w.ctx, "sqlite://"+w.Database())
	w.must(err)
	defer db.Close()
	refused, granted := 0, 0
	w.must(db.View(w.ctx, func(q jobdb.Queries) error {
		return q.Decisions(jobdb.RecordFilter{}, func(d *jobdb.Decision) error {
			switch {
			case d.Generation < generation:
				return nil
			case d.Code.String() == "KillSwitch":
				refused++
			case d.Requeue && d.Code.String() != "LeaseReturned":
				granted++
			}
			return nil
		})
	}))
	if refused == 0 || granted > 0 {
		t.Errorf("after the kill %d retries were refused, %d granted", refused, granted)
	}
	t.Logf("after the kill, generation %d: %d retries refused", generation, refused)
}

func address(w *world, of string) string {
	w.t.Helper()
	b, err := os.ReadFile(app.Dir(w.Data(of)).APIAddress())
	w.must(err)
	return strings.TrimSpace(string(b))
}

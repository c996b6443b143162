package armadabox_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/refloat/refloat/internal/convert"
	"github.com/refloat/refloat/internal/test/e2e"
)

// mostJobs of a manifest are submitted to ask whether Armada accepts it.
const mostJobs = 1000

// acceptsManifests submits the jobs of every manifest of the converter's tests that converts without an error, and fails on
// one that Armada's server refuses. None of them is ever scheduled: they are in a cordoned queue, and are cancelled.
func (w *world) acceptsManifests(t *testing.T, dir string) {
	ctx, cancel := context.WithTimeout(t.Context(), defaultLimit)
	defer cancel()
	const queue, set = "every-manifest", "every-manifest-set"
	run := func(args ...string) {
		t.Helper()
		if _, err := w.Armadactl(ctx, args...); err != nil {
			t.Fatal(err)
		}
	}
	run("create", "queue", queue, "--priority-factor", "1")
	run("cordon", "queues", queue)
	began, jobs := time.Now(), 0
	batches := batchesOf(t, dir, convert.Options{Queue: queue, JobSet: set})
	for _, batch := range batches {
		var all convert.Submit
		for _, m := range batch {
			all.Queue, all.JobSetID, all.Jobs = queue, set, append(all.Jobs, m.Jobs...)
		}
		jobs += len(all.Jobs)
		if w.accepts(ctx, t, &all) == nil {
			continue
		}
		for _, m := range batch { // the whole batch was refused: which one was it?
			if err := w.accepts(ctx, t, &m.Submit); err != nil {
				t.Errorf("%s: Armada refuses it: %v", m.where, err)
			}
		}
	}
	run("cancel", "job-set", queue, set)
	t.Logf("Armada accepts %d jobs, submitted %d times: %v", jobs, len(batches), time.Since(began).Round(100*time.Millisecond))
}

// accepts submits jobs with the real armadactl.
func (w *world) accepts(ctx context.Context, t *testing.T, s *convert.Submit) error {
	t.Helper()
	var text bytes.Buffer
	if err := s.WriteYAML(&text); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "jobs.yaml")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	var out string
	var err error
	if late := e2e.Until(ctx, func() (bool, error) {
		out, err = w.Armadactl(ctx, "submit", file)
		return !strings.Contains(out, unknownQueue), nil
	}); late != nil {
		t.Fatal(late)
	}
	if n := len(submitted.FindAllString(out, -1)); err == nil && n != len(s.Jobs) {
		return fmt.Errorf("%d of %d jobs:\n%s", n, len(s.Jobs), out)
	}
	return err
}

type manifest struct {
	where string
	convert.Submit
}

// batchesOf converts the manifests, and cuts them into batches in which no two have a gang of the same name: Armada refuses
// a submission in which the members of a gang differ.
func batchesOf(t *testing.T, dir string, o convert.Options) [][]manifest {
	t.Helper()
	batches, gangs := [][]manifest{nil}, map[string]bool{}
	datadriven.Walk(t, dir, func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			r := convert.Convert([]convert.File{{Name: "in.yaml", Data: []byte(d.Input)}}, o)
			if len(r.Submits) == 0 {
				return d.Expected
			}
			submit := r.Submits[0] // of one queue
			switch n := len(submit.Jobs); {
			case n > mostJobs:
				t.Logf("%s: %d jobs are too many to try", d.Pos, n)
				return d.Expected
			}
			own := map[string]bool{}
			for _, j := range submit.Jobs {
				if id := j.Annotations["armadaproject.io/gangId"]; id != "" {
					own[id] = true
				}
			}
			for id := range own {
				if gangs[id] {
					batches, gangs = append(batches, nil), map[string]bool{}
					break
				}
			}
			for id := range own {
				gangs[id] = true
			}
			last := &batches[len(batches)-1]
			*last = append(*last, manifest{where: d.Pos, Submit: submit})
			return d.Expected
		})
	})
	return batches
}

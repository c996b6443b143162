package app_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
)

// TestAnewDeletesNothing checks that a data directory is not made anew for a feed of more partitions if anything in
// it may matter, although its events log is empty.
func TestAnewDeletesNothing(t *testing.T) {
	t.Parallel()
	config := func(dir app.Dir, feeds ...string) app.Config {
		return app.Config{
			Data: dir, Policies: writeFile(t, t.TempDir(), "policies.yaml", policies), Feeds: feeds, Evaluate: true, Ingest: true, ExitWhenDrained: true,
			Log: quiet(t), Now: time.Now,
		}
	}
	used, unused := app.Dir(t.TempDir()), app.Dir(t.TempDir())
	for _, c := range []app.Config{config(used, recordingFile("preempted")), config(unused)} {
		if err := app.Run(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name  string
		spoil func(t *testing.T, dir app.Dir)
		want  string
	}{
		{"job database of lost logs", func(t *testing.T, dir app.Dir) {
			copyFile(t, dir.JobDB(), used.JobDB())
		}, "has rows"},
		{"no job database", func(t *testing.T, dir app.Dir) {
			writeFile(t, string(dir), "jobs.sqlite", "something else")
		}, "jobs.sqlite"},
		{"state of lost logs", func(t *testing.T, dir app.Dir) {
			replaceDir(t, dir.State(0), used.State(0))
		}, "has the state after an event"},
		{"state of other logs", func(t *testing.T, dir app.Dir) {
			replaceDir(t, dir.State(1), used.State(0))
		}, "is no state of its logs"},
		{"state that was set aside", func(t *testing.T, dir app.Dir) {
			replaceDir(t, dir.State(0)+".damaged-20260101", used.State(0))
		}, "is no state of its logs"},
		{"unknown decision", func(t *testing.T, dir app.Dir) {
			appendTo(t, dir.Decisions(), "of a newer program")
		}, "decision log"},
		{"decisions of lost events", func(t *testing.T, dir app.Dir) {
			replaceDir(t, filepath.Join(dir.Decisions(), "0000"), filepath.Join(used.Decisions(), "0000"))
		}, "it has decided events"},
		{"event", func(t *testing.T, dir app.Dir) {
			appendTo(t, dir.Events(), "an event")
		}, "it has events"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := app.Dir(filepath.Join(t.TempDir(), "data"))
			replaceDir(t, string(dir), string(unused))
			tt.spoil(t, dir)
			before := filesIn(t, dir)
			err := app.Run(t.Context(), config(dir, recordingFile("plain")))
			if err == nil || !strings.Contains(err.Error(), "the feeds need 3 partitions") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Run = %v, want that it says %q", err, tt.want)
			}
			for name := range before {
				if after := filesIn(t, dir); !after[name] {
					t.Errorf("%s is gone", name)
				}
			}
		})
	}
	t.Run("nothing", func(t *testing.T) {
		t.Parallel()
		dir := app.Dir(filepath.Join(t.TempDir(), "data"))
		replaceDir(t, string(dir), string(unused))
		if err := app.Run(t.Context(), config(dir, recordingFile("plain"))); err != nil {
			t.Fatal(err)
		}
		follows(t, dir)
	})
}

// filesIn returns the data that may matter: all but files that a store that is opened replaces.
func filesIn(t *testing.T, dir app.Dir) map[string]bool {
	t.Helper()
	files := map[string]bool{}
	err := filepath.WalkDir(string(dir), func(path string, d fs.DirEntry, err error) error {
		if state := strings.Contains(path, "/state/"); err == nil && (d.IsDir() || !state) {
			files[path] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func replaceDir(t *testing.T, to, from string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

func appendTo(t *testing.T, dir, payload string) {
	t.Helper()
	log, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Append(0, []eventlog.Message{{Payload: []byte(payload)}}); err != nil {
		t.Fatal(err)
	}
	if err := log.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

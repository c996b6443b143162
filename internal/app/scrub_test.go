package app_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/eventlog"
)

// drainedDir is a data directory in which everything is decided, and whose state
// is in tables.
func drainedDir(t *testing.T) app.Config {
	t.Helper()
	c := app.Config{
		Data: app.Dir(filepath.Join(t.TempDir(), "data")), Policies: writeFile(t, t.TempDir(), "policies.yaml", policies),
		Feeds: []string{recordingFile("chaos"), recordingFile("preempted")}, Evaluate: true, Ingest: true, ExitWhenDrained: true,
		Log: slog.New(slog.DiscardHandler), Now: time.Now,
	}
	if err := app.Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	c.Feeds, c.ExitWhenDrained = nil, false
	for _, dir := range found(t, filepath.Join(string(c.Data), "state", "*")) {
		db, err := pebble.Open(dir, &pebble.Options{FormatMajorVersion: pebble.FormatNewest, Logger: silent{}})
		if err == nil {
			err = errors.Join(db.Flush(), db.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(string, ...any) { panic("state") }

// flipBit damages a file in the middle.
func flipBit(t *testing.T, path string, part float64) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		b[int(float64(len(b))*part)] ^= 4
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// running is a node with its scrubber.
type running struct {
	notes *notes
	stop  context.CancelFunc
	ended chan error
}

func run(t *testing.T, c app.Config) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &running{notes: &notes{}, stop: stop, ended: make(chan error, 1)}
	c.Log = slog.New(slog.NewTextHandler(r.notes, nil))
	go func() { r.ended <- app.Run(ctx, c) }()
	return r
}

// until waits until something holds while the node runs.
func (r *running) until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick, limit := time.NewTicker(10*time.Millisecond), time.NewTimer(time.Minute)
	defer tick.Stop()
	defer limit.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case err := <-r.ended:
			t.Fatalf("the node ended before %s: %v\n%s", what, err, r.notes.all())
		case <-limit.C:
			t.Fatalf("%s: not within a minute\n%s", what, r.notes.all())
		}
	}
}

func (r *running) end(t *testing.T) {
	t.Helper()
	r.stop()
	if err := <-r.ended; err != nil {
		t.Fatal(err)
	}
}

func found(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// TestScrubFolds: damage in places that nothing reads is found, and what is
// damaged is set aside and made again while the node runs.
func TestScrubFolds(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(t *testing.T, dir app.Dir) (aside string){
		"state": func(t *testing.T, dir app.Dir) string {
			tables := found(t, filepath.Join(dir.State(0), "*.sst"))
			if len(tables) == 0 {
				t.Fatal("the state has no tables")
			}
			flipBit(t, tables[0], 0.3)
			return dir.State(0)
		},
		"job database": func(t *testing.T, dir app.Dir) string {
			flipBit(t, dir.JobDB(), 0.9)
			return dir.JobDB()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := drainedDir(t)
			path := damage(t, c.Data)
			c.ScrubRate = 64 << 20
			r := run(t, c)
			r.until(t, "damage is found", func() bool { return strings.Contains(r.notes.all(), "set aside and rebuilt") })
			r.end(t)
			if len(found(t, path+".damaged-*")) == 0 {
				t.Errorf("nothing stands beside %s", path)
			}
			if n := r.notes.count("set_aside="); n != 1 {
				t.Errorf("%d lines tell of it, want 1:\n%s", n, r.notes.all())
			}
			c.Feeds, c.ExitWhenDrained = []string{recordingFile("chaos"), recordingFile("preempted")}, true
			if err := app.Run(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			follows(t, c.Data)
		})
	}
}

// TestScrubLogs: damage in a log, below everything that anybody still reads, ends
// the node and names the place.
func TestScrubLogs(t *testing.T) {
	t.Parallel()
	for _, log := range []string{"events", "decisions", "policies"} {
		t.Run(log, func(t *testing.T) {
			t.Parallel()
			c := drainedDir(t)
			c.Policies = ""
			segment := filepath.Join(string(c.Data), "logs", log, "0000", "00000000000000000000.seg")
			before, err := os.ReadFile(segment)
			if err != nil {
				t.Fatal(err)
			}
			flipBit(t, segment, 130/float64(len(before)))
			c.ScrubRate = 64 << 20
			r := run(t, c)
			defer r.stop()
			select {
			case err = <-r.ended:
			case <-time.After(time.Minute):
				t.Fatal("the node goes on")
			}
			if !errors.Is(err, eventlog.ErrCorrupt) || !strings.Contains(err.Error(), segment) || !strings.Contains(err.Error(), "restore the file from a copy") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestScrubGoesOn: what was read before a stop is not read again at once.
func TestScrubGoesOn(t *testing.T) {
	t.Parallel()
	c := drainedDir(t)
	c.ScrubRate, c.Listen = 1, "127.0.0.1:0"
	kept := func() map[string]string {
		done := map[string]string{}
		if b, err := os.ReadFile(filepath.Join(string(c.Data), "scrub.json")); err == nil {
			if err := json.Unmarshal(b, &done); err != nil {
				t.Fatal(err)
			}
		}
		return done
	}
	r := run(t, c)
	r.until(t, "something was read", func() bool { return kept()["events/0"] != "" })
	r.end(t)
	first, err := eventlog.ParsePosition(kept()["events/0"])
	if err != nil || first == eventlog.Start {
		t.Fatalf("the scrubber kept %v (%v)", kept(), err)
	}
	r = run(t, c)
	defer r.stop()
	r.until(t, "more was read", func() bool {
		next, err := eventlog.ParsePosition(kept()["events/0"])
		return err == nil && next.Compare(first) > 0
	})
	r.end(t)
}

package app_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/test/policysynctest"
)

// TestFollowArmada checks that a node that follows an Armada reads it first; if that fails, the policies that an
// earlier process read stay in force, and if there are none, nothing is decided.
func TestFollowArmada(t *testing.T) {
	t.Parallel()
	dir := app.Dir(filepath.Join(t.TempDir(), "data"))
	var logged bytes.Buffer
	armada := policysynctest.Serve(t, "", nil)
	armada.Set("infra", policysynctest.Policy("infra", 2, "node"))
	c := app.Config{
		Data: dir, Follow: &app.Follow{Address: armada.Address}, Feeds: []string{recordingFile("preempted")}, Evaluate: true, Ingest: true, ExitWhenDrained: true,
		Log: slog.New(slog.NewTextHandler(&logged, nil)), Now: time.Now,
	}
	armada.Fail(app.ErrNoData) // any error
	if err := app.Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "follow the policies of Armada at "+armada.Address) || !strings.Contains(err.Error(), "no earlier process read them") {
		t.Errorf("without policies: %v", err)
	}
	armada.Fail(nil)
	if err := app.Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	armada.Stop()
	if err := app.Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if text := logged.String(); strings.Count(text, "policies updated from armada") != 1 || !strings.Contains(text, "polling armada failed; the policies that were read last stay in force") {
		t.Errorf("logged %s", text)
	}
	follows(t, dir)
}

// onRecord calls a function with each record that is logged.
type onRecord struct {
	slog.Handler
	call func(slog.Record)
}

// Enabled implements slog.Handler.
func (onRecord) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (h onRecord) Handle(_ context.Context, r slog.Record) error {
	h.call(r)
	return nil
}

// TestServingIsAnnounced: when a node logs that it serves the API, the data directory names its address.
func TestServingIsAnnounced(t *testing.T) {
	t.Parallel()
	dir := app.Dir(filepath.Join(t.TempDir(), "data"))
	ctx, end := context.WithCancel(t.Context())
	announced, recorded := "", ""
	log := slog.New(onRecord{slog.DiscardHandler, func(r slog.Record) {
		if !strings.HasPrefix(r.Message, "serving the page and the policy API") {
			return
		}
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "address" {
				announced = a.Value.String()
			}
			return true
		})
		b, err := os.ReadFile(dir.APIAddress())
		if err != nil {
			t.Error(err)
		}
		recorded = strings.TrimSpace(string(b))
		end()
	}})
	if err := app.Run(ctx, app.Config{Data: dir, Evaluate: true, Ingest: true, API: app.API{Listen: "127.0.0.1:0"}, Log: log, Now: time.Now}); err != nil {
		t.Fatal(err)
	}
	if announced == "" || recorded != announced {
		t.Errorf("announced address %q, the data directory names %q", announced, recorded)
	}
}

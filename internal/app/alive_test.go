package app_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
)

// TestAliveWithoutBroker: a process that waits for its broker is alive, and not ready.
func TestAliveWithoutBroker(t *testing.T) {
	t.Parallel()
	broker, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	ended := make(chan error, 1)
	go func() {
		ended <- app.RunIngester(ctx, app.Config{
			Data: app.Dir(t.TempDir()), Listen: address, Instance: "waits", Log: slog.New(slog.DiscardHandler), Now: time.Now,
			Pulsar: &app.Pulsar{
				Cluster: pulsarlog.Config{ServiceURL: "pulsar://" + broker.Addr().String(), Tenant: "public", Namespace: "default", Log: slog.New(slog.DiscardHandler)},
				Events:  "events", Decisions: "decisions", Policies: "policies",
			},
		})
	}()
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
		for {
			answer, err := http.Get("http://" + address + path)
			if err == nil {
				_ = answer.Body.Close()
				if answer.StatusCode != want {
					t.Errorf("%s answers %d before the broker is reached, want %d", path, answer.StatusCode, want)
				}
				break
			}
			select {
			case err := <-ended:
				t.Fatalf("the process ended: %v", err)
			default:
			}
			if eventlog.Sleep(ctx, 10*time.Millisecond) != nil {
				t.Fatalf("%s: %v in vain", path, err)
			}
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("a shutdown while waiting for the broker: %v", err)
	}
}

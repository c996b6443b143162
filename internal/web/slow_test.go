package web_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/sqlite"
	"github.com/refloat/refloat/internal/web"
)

// TestSlowClient: clients that ask for a page larger than all buffers of the connection, and read nothing of it, do not
// keep others waiting, are bounded by their address, and are disconnected at the bound for reading.
func TestSlowClient(t *testing.T) {
	t.Parallel()
	reader := jobsWith(t, strings.Repeat("x", 48<<10)) // in each of the 50 rows, in links too
	var c web.Config
	newSmall(t, func(of *web.Config) {
		of.Query.Jobs, of.WriteTimeout = reader.View, 4*time.Second
		c = *of
	})
	h, err := web.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	const slow = 8 // as many as one address may have
	sent, done := make(chan *statusWriter, slow), make(chan struct{}, slow)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(&statusWriter{ResponseWriter: w, sent: sent}, r)
		done <- struct{}{}
	}))
	defer server.Close()
	begun := time.Now()
	for range slow {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.(*net.TCPConn).SetReadBuffer(4096)
		if _, err := fmt.Fprintf(conn, "GET /jobs HTTP/1.1\r\nHost: %s\r\n\r\n", server.Listener.Addr()); err != nil {
			t.Fatal(err)
		}
	}
	// Another address is served meanwhile, by the same handler; this one has its share.
	other := func(peer string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/policies", http.NoBody)
		r.RemoteAddr = peer + ":1"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	var writers []*statusWriter
	for range slow {
		select {
		case w := <-sent:
			if w.code != http.StatusOK {
				t.Fatalf("a slow client got %d", w.code)
			}
			if took := w.bound.Sub(begun); took < c.WriteTimeout || took > c.WriteTimeout+time.Since(begun) {
				t.Errorf("a client may read until %v after it asked, want %v from when its page was made", took, c.WriteTimeout)
			}
			writers = append(writers, w)
		case <-time.After(time.Minute):
			t.Fatal("a slow client got no page")
		}
	}
	if code := other("127.0.0.1"); code != http.StatusServiceUnavailable {
		t.Errorf("an address with %d slow clients got %d", slow, code)
	}
	if code := other("127.0.0.2"); code != http.StatusOK {
		t.Errorf("another address got %d while slow clients read nothing", code)
	}
	if len(done) > 0 {
		t.Error("a client that read nothing got its page: the page is too small for this test")
	}
	for _, w := range writers {
		if err := http.NewResponseController(w.ResponseWriter).SetWriteDeadline(begun); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("the server waits for a client that reads nothing")
		}
	}
	if code := other("127.0.0.1"); code != http.StatusOK {
		t.Errorf("the address got %d after its slow clients were disconnected", code)
	}
}

// statusWriter tells the status of an answer when it begins, and until when its client may read it, which the test
// enforces itself: when all slow clients are there.
type statusWriter struct {
	http.ResponseWriter
	sent  chan<- *statusWriter
	code  int
	bound time.Time
}

// SetWriteDeadline is for http.ResponseController.
func (w *statusWriter) SetWriteDeadline(at time.Time) error {
	w.bound = at
	return nil
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(code int) {
	w.code = code
	w.sent <- w
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// jobsWith is a job database with the jobs of one page, in a queue of this name.
func jobsWith(t *testing.T, queue string) *sqlite.Reader {
	t.Helper()
	path := t.TempDir() + "/jobs.db"
	db, err := sqlite.Open(context.Background(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	from := tx.Positions()
	to := from
	to.Chain.Seq++
	c := &jobdb.Changes{}
	for i := range pageRows {
		c.Jobs = append(c.Jobs, &jobdb.Job{JobID: fmt.Sprint("job", i), Queue: queue, Known: true, Times: jobdb.JobTimes{Submitted: int64(i + 1)}})
	}
	if err := tx.Write(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context(), from, to); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	reader, err := sqlite.OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reader.Close() })
	return reader
}

package app

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/jobdb"
)

// TestJobReaderOpens: while one opens a job database that does not answer, others wait no longer than they want to.
func TestJobReaderOpens(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n := &node{}
	n.API.JobDB = "postgres://u@" + l.Addr().String() + "/db?sslmode=disable"
	r := newJobReader(n)
	none := func(jobdb.Queries) error { return errors.New("it was read") }
	first, leave := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.view(first, none) }()
	conn, err := l.Accept() // and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	second, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	answered := make(chan error, 1)
	go func() { answered <- r.view(second, none) }()
	select {
	case err := <-answered:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the second: %v, want %v", err, context.DeadlineExceeded)
		}
	case <-time.After(5 * time.Second):
		t.Error("the second waits for the first")
	}
	leave()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v, want %v", err, context.Canceled)
	}
}

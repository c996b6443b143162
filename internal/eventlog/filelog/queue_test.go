package filelog_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
)

// gated is a file system on which syncs of data wait for a token.
func gated() (vfs.FS, chan struct{}) {
	gate := make(chan struct{})
	return errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSyncData {
			<-gate
		}
		return nil
	})), gate
}

func message(size int) []eventlog.Message {
	return []eventlog.Message{{Payload: make([]byte, size)}}
}

// A full queue blocks appends until a commit takes it; appends that wait behind a sync
// are committed together.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		files, gate := gated()
		log := mustOpen(t, filelog.Config{FS: files, Dir: "log", Partitions: 2, QueueBytes: 1000})
		append1 := func(p, size int) {
			if err := log.Append(p, message(size)); err != nil {
				t.Error(err)
			}
		}
		append1(0, 500)
		synctest.Wait() // the commit has taken it and waits
		append1(0, 600)
		append1(1, 600)
		blocked := make(chan struct{})
		go func() {
			append1(1, 10)
			close(blocked)
		}()
		synctest.Wait()
		select {
		case <-blocked:
			t.Fatal("an append went into a full queue")
		default:
		}
		gate <- struct{}{} // the first commit; the next one takes the queue
		<-blocked
		flushed := make(chan error)
		go func() { flushed <- log.Flush(t.Context()) }()
		synctest.Wait()
		gate <- struct{}{} // partition 0
		gate <- struct{}{} // partition 1
		gate <- struct{}{} // the last message
		if err := <-flushed; err != nil {
			t.Fatal(err)
		}
		mustClose(t, log)
	})
}

// Close releases callers that wait in Append, and commits accepted messages.
func TestCloseWhileFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		files, gate := gated()
		c := filelog.Config{FS: files, Dir: "log", Partitions: 1, QueueBytes: 100}
		log := mustOpen(t, c)
		for range 2 {
			if err := log.Append(0, message(200)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		refused := make(chan error)
		go func() { refused <- log.Append(0, message(1)) }()
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- log.Close() }()
		if err := <-refused; !errors.Is(err, fs.ErrClosed) {
			t.Fatalf("Append while closing: %v", err)
		}
		gate <- struct{}{}
		gate <- struct{}{}
		if err := <-closed; err != nil {
			t.Fatal(err)
		}
		log = mustOpen(t, c)
		if all, err := readAll(log, 0, eventlog.Start); err != nil || len(all) != 2 {
			t.Fatalf("%d messages, %v", len(all), err)
		}
		mustClose(t, log)
	})
}

// Flush ends with its context; the commit continues.
func TestFlushContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		files, gate := gated()
		log := mustOpen(t, filelog.Config{FS: files, Dir: "log", Partitions: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := log.AppendSync(ctx, 0, message(10)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("AppendSync: %v", err)
		}
		gate <- struct{}{}
		if err := log.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustClose(t, log)
	})
}

// A Manual log never waits: a full queue is an error.
func TestManualFull(t *testing.T) {
	t.Parallel()
	log := mustOpen(t, filelog.Config{FS: vfs.NewMem(), Dir: "log", Partitions: 1, Manual: true, QueueBytes: 100})
	defer mustClose(t, log)
	for range 3 {
		if err := log.Append(0, message(100)); err != nil {
			t.Fatal(err)
		}
		if err := log.Append(0, message(100)); err == nil {
			t.Fatal("Append went into a full queue")
		}
		if err := log.Commit(); err != nil {
			t.Fatal(err)
		}
	}
}

// Appends from many goroutines to many partitions: each partition has the messages of
// each goroutine in order.
func TestManyWriters(t *testing.T) {
	t.Parallel()
	log := mustOpen(t, filelog.Config{FS: vfs.NewMem(), Dir: "log", Partitions: 3, QueueBytes: 500, SegmentBytes: 5000})
	const writers, each = 8, 150
	errs := make(chan error)
	for w := range writers {
		go func() {
			var err error
			for i := range each {
				err = errors.Join(err, log.Append(i%3, []eventlog.Message{{Key: fmt.Sprint(w), Payload: fmt.Append(nil, i)}}))
			}
			errs <- errors.Join(err, log.Flush(t.Context()))
		}()
	}
	for range writers {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	for p := range 3 {
		all, err := readAll(log, p, eventlog.Start)
		if err != nil {
			t.Fatal(err)
		}
		next := make(map[string]int)
		for _, m := range all {
			if want := 3*next[m.Key] + p; string(m.Payload) != fmt.Sprint(want) {
				t.Fatalf("partition %d, writer %s: message %s, want %d", p, m.Key, m.Payload, want)
			}
			next[m.Key]++
		}
		if len(all) != writers*each/3 {
			t.Fatalf("partition %d has %d messages", p, len(all))
		}
	}
	mustClose(t, log)
}

// A read-only log polls for another writer's messages: soon, less often while nothing
// changes, and not at all once it is closed.
func TestPolling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		mem := vfs.NewMem()
		c := filelog.Config{FS: mem, Dir: "log", Partitions: 2, Manual: true}
		log := mustOpen(t, c)
		c.ReadOnly, c.Manual = true, false
		c.FS = errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileReadAt {
				reads++
			}
			return nil
		}))
		apart := mustOpen(t, c)
		r := open(t, apart, 1)
		for i, idle := range []time.Duration{0, time.Millisecond, time.Second, time.Hour} {
			<-time.After(idle)
			if _, err := drain(r); err != nil {
				t.Fatal(err)
			}
			select { // an earlier token
			case <-r.Changed():
			default:
			}
			if err := errors.Join(log.Append(1, message(i)), log.Commit()); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			<-r.Changed()
			if waited := time.Since(begun); waited > 100*time.Millisecond {
				t.Fatalf("after %v idle it took %v", idle, waited)
			}
			if all, err := drain(r); err != nil || len(all) != 1 {
				t.Fatalf("%d messages, %v", len(all), err)
			}
		}
		if reads > 2*40_000 { // two slots, ten times a second, for an hour
			t.Fatalf("%d reads in an hour", reads)
		}
		mustClose(t, r)
		mustClose(t, apart)
		mustClose(t, log)
	})
}

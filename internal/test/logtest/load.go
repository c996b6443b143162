package logtest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/refloat/refloat/internal/eventlog"
)

// testLarge appends messages of 4 MiB, compressible and incompressible, between small ones. Messages already read
// must not change while more are read.
func testLarge(t *testing.T, h *Harness) {
	rng := rand.New(rand.NewPCG(1, 2))
	var want []eventlog.Message
	for i := range 9 {
		payload := fmt.Appendf(nil, "small %d", i)
		switch i % 3 {
		case 1:
			payload = bytes.Repeat(payload, 4<<20/len(payload))
		case 2:
			payload = make([]byte, 4<<20)
			for j := range payload {
				payload[j] = byte(rng.Uint32())
			}
		}
		want = append(want, eventlog.Message{Key: "k", Payload: payload})
	}
	for _, m := range want {
		h.append(t, 0, m)
	}
	all := h.read(t, 0, eventlog.Start, 2)
	equal(t, all, want)
	equal(t, h.read(t, 0, all[4].Position, 100), want[5:])
	equal(t, all, want)
}

// However many messages a reader asks for, it gets few large ones at once, and all in time.
func testBytesAtOnce(t *testing.T, h *Harness) {
	const messages, size = 24, 500_000
	for range messages {
		h.append(t, 0, eventlog.Message{Payload: make([]byte, size)})
	}
	r := h.open(t, 0, eventlog.Start)
	defer shut(t, r)
	dst := make([]eventlog.Message, 10*messages)
	for got := 0; got < messages; {
		n, err := r.Read(dst)
		if err != nil {
			t.Fatalf("Read: %v", err)
		}
		if n*size >= eventlog.ReadBytes+size {
			t.Fatalf("Read returned %d messages of %d bytes at once", n, size)
		}
		if n == 0 {
			await(t, r)
		}
		got += n
	}
}

func testManyInOneBatch(t *testing.T, h *Harness) {
	var want []eventlog.Message
	for i := range 3000 {
		want = append(want, eventlog.Message{Key: fmt.Sprint(i % 700), Payload: bytes.Repeat([]byte{byte(i)}, i%200)})
	}
	h.append(t, 0, want...)
	all := h.read(t, 0, eventlog.Start, 256)
	equal(t, all, want)
	for _, i := range []int{0, 1, 999, 1500, 2998, 2999} {
		equal(t, h.read(t, 0, all[i].Position, 999), want[i+1:])
	}
}

// testLockStep appends each message after the previous one was read, and reads only after a wake-up or a
// successful read: a single missed wake-up blocks it.
func testLockStep(t *testing.T, h *Harness) {
	rounds := 500
	if testing.Short() {
		rounds = 50
	}
	const p = 1
	r := h.open(t, p, eventlog.Start)
	defer shut(t, r)
	read := make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		for i := range rounds {
			if err := h.Append(p, []eventlog.Message{{Payload: fmt.Append(nil, i)}}); err != nil {
				failed <- err
				return
			}
			<-read
		}
		failed <- nil
	}()
	last := eventlog.Start
	for i := range rounds {
		m := next(t, r, 1)[0]
		if string(m.Payload) != fmt.Sprint(i) || m.Position.Compare(last) <= 0 {
			t.Fatalf("message %d is %q at %v, after %v", i, m.Payload, m.Position, last)
		}
		last = m.Position
		read <- struct{}{}
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}

// testFollow checks that several readers, starting at different positions, follow a writer that does not wait for
// them.
func testFollow(t *testing.T, h *Harness) {
	batches := 300
	if testing.Short() {
		batches = 50
	}
	const p = 0
	want := h.fill(t, p, 10)
	begun := h.read(t, p, eventlog.Start, 100)
	for i := range batches {
		for j := range i%3 + 1 {
			want = append(want, eventlog.Message{Key: "k", Payload: fmt.Appendf(nil, "%d/%d", i, j)})
		}
	}
	type result struct {
		from int
		got  []eventlog.Message
		err  error
	}
	results := make(chan result)
	starts := []int{0, 4, 10}
	for _, from := range starts {
		after := eventlog.Start
		if from > 0 {
			after = begun[from-1].Position
		}
		r := h.open(t, p, after)
		defer shut(t, r)
		go func() {
			got, err := follow(r, len(want)-from, from+1)
			results <- result{from, got, err}
		}()
	}
	rest := want[10:]
	for i := range batches {
		n := i%3 + 1
		h.append(t, p, rest[:n]...)
		rest = rest[n:]
	}
	for range starts {
		res := <-results
		if res.err != nil {
			t.Fatal(res.err)
		}
		equal(t, res.got, want[res.from:])
	}
}

// follow reads n messages, size at a time, waiting where there are none yet.
func follow(r eventlog.Reader, n, size int) ([]eventlog.Message, error) {
	var all []eventlog.Message
	dst := make([]eventlog.Message, size)
	for len(all) < n {
		k, err := r.Read(dst)
		if err != nil {
			return nil, err
		}
		all = append(all, dst[:k]...)
		if k > 0 {
			continue
		}
		if err := changed(r); err != nil {
			return nil, err
		}
	}
	return all, nil
}

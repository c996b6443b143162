package evaluator_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/test/model"
)

// narrow is a publisher that takes no message above a size. Late, it says so only
// after it seemed to take one.
type narrow struct {
	eventlog.Publisher
	limit int
	late  bool
	err   error
}

func (n *narrow) Publish(payload []byte) error {
	if len(payload) <= n.limit {
		return n.Publisher.Publish(payload)
	}
	if n.late {
		n.err = eventlog.ErrTooLarge
		return nil
	}
	return eventlog.ErrTooLarge
}

func (n *narrow) Err() error { return n.err }

// TestTooLarge: a message whose records the log does not take stops nobody. It is
// parked by digest and length, as much of it as must be, and whoever reads the chain
// comes to the same.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	const limit = 700
	forms := map[string]int{}
	for seed := range short(t, 60, 20) {
		h := model.Generate(seed, model.Options{})
		garbage := bytes.Repeat([]byte{0xff}, limit+int(seed))
		small := []byte{0xff, 0xff}
		last := h.Messages[len(h.Messages)-1]
		for i, payload := range [][]byte{garbage, small, {}, many(t)} {
			m := last
			m.Entry, m.Payload = m.Entry+1+int64(i), payload
			h.Messages = append(h.Messages, m)
		}
		rand.New(rand.NewPCG(seed, 9)).Shuffle(len(h.Messages), func(i, j int) {
			h.Messages[i].Payload, h.Messages[j].Payload = h.Messages[j].Payload, h.Messages[i].Payload
		})
		w := newWorld(t, seed)
		w.feed(h)
		fit := &evaluator.Fit{}
		lives := 0
		m := w.start("state", evaluator.Config{Fit: fit})
		for {
			m.cfg.Publisher = &narrow{Publisher: w.decisions.Publisher(0), limit: limit, late: seed%2 == 1}
			m.renew()
			err := m.drain()
			if err == nil {
				break
			}
			if lives++; lives > 10*len(h.Messages) || !errors.Is(err, evaluator.ErrLost) {
				t.Fatalf("seed %d, life %d: %v", seed, lives, err)
			}
		}
		if n := fit.Len(); n != 0 {
			t.Errorf("seed %d: %d messages are remembered after their envelopes were accepted", seed, n)
		}
		w.verified()
		want := dump(t, m.cfg.Store)
		again := w.start("again", evaluator.Config{})
		if err := again.drain(); err != nil {
			t.Fatalf("seed %d: who reads the chain: %v", seed, err)
		}
		if got := dump(t, again.cfg.Store); !bytes.Equal(got, want) {
			t.Fatalf("seed %d: state\n%s\nwant\n%s", seed, got, want)
		}
		again.stop()
		m.stop()
		parked(t, w, func(r *chain.Parked) {
			switch {
			case r.Length == 0:
				forms["in full"]++
			case r.Reason == events.TooLarge:
				forms["refused"]++
			default:
				forms["brief"]++
				if !r.Keeps(garbage) {
					t.Errorf("seed %d: %d bytes are parked by digest, which is not theirs or need not be", seed, r.Length)
				}
			}
		})
	}
	t.Logf("parked: %v", forms)
	for _, form := range []string{"in full", "brief", "refused"} {
		if forms[form] == 0 {
			t.Errorf("nothing is parked %s", form)
		}
	}
}

// many is a message of so many failed runs that their records do not fit.
func many(t *testing.T) []byte {
	t.Helper()
	seq := &pb.EventSequence{Queue: "q", JobSetName: "many"}
	for i := range 20 {
		seq.Events = append(seq.Events, &pb.Event{Created: &pb.Timestamp{Seconds: 1}, Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{
			JobId: fmt.Sprint("job-", i), RunId: fmt.Sprint("run-", i),
			Errors: []*pb.Error{{Terminal: true, Reason: &pb.Error_LeaseExpired{LeaseExpired: &pb.LeaseExpired{}}}},
		}}})
	}
	payload, err := proto.Marshal(seq)
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

func parked(t *testing.T, w *world, each func(*chain.Parked)) {
	t.Helper()
	r, err := w.decisions.Open(0, eventlog.Start)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for chunk := make([]eventlog.Message, 64); ; {
		n, err := r.Read(chunk)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return
		}
		for _, m := range chunk[:n] {
			env, err := chain.DecodeEnvelope(m.Payload)
			if err != nil {
				t.Fatal(err)
			}
			records, err := env.Decode()
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range records {
				if p, ok := r.(*chain.Parked); ok {
					each(p)
				}
			}
		}
	}
}

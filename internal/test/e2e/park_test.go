package e2e

import (
	"math/rand/v2"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
)

// TestParked: a message as large as the broker takes, which nobody can read and whose
// record would be larger still, and one that is empty and in no batch, stop nothing.
func TestParked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.evaluator("a")
	w.ingester("one")
	w.live(1, a)
	l, err := w.Open()
	w.must(err)
	defer l.Close()
	p, err := l.Cluster.Client().CreateProducer(pulsar.ProducerOptions{Topic: l.Events.PartitionName(0), DisableBatching: true})
	w.must(err)
	defer p.Close()
	noise := make([]byte, 5<<20-64) // with its header, the largest message that the broker takes
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	for _, payload := range [][]byte{noise, {}} {
		_, err := p.Send(w.ctx, &pulsar.ProducerMessage{Payload: payload})
		w.must(err)
		w.nudge()
	}
	if sum := w.settledAndRight(); sum.Parked != 2 {
		t.Errorf("%d messages are parked, want 2", sum.Parked)
	}
}

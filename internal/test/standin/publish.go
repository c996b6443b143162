package standin

import (
	"context"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
)

// Log is the events topic. A *filelog.Log is one.
type Log interface {
	eventlog.Topic
	// AppendSync appends messages to partition p and returns when they are durable.
	AppendSync(ctx context.Context, p int, msgs []eventlog.Message) error
}

// publisher writes sequences as Armada's producers do.
type publisher struct {
	log       Log
	maxEvents int // of a message
}

// publish puts the sequences of a job set together, cuts them into messages, and
// writes them. An error does not mean that nothing was written.
func (p *publisher) publish(ctx context.Context, all []sequence) error {
	byPartition := make([][]eventlog.Message, p.log.Partitions())
	for _, s := range compact(all) {
		to := eventlog.PartitionFor(s.set, len(byPartition))
		for events := range slices.Chunk(s.events, p.maxEvents) {
			s.events = events
			byPartition[to] = append(byPartition[to], eventlog.Message{Key: s.set, Payload: s.encode()})
		}
	}
	for i, msgs := range byPartition {
		if len(msgs) == 0 {
			continue
		}
		if err := p.log.AppendSync(ctx, i, msgs); err != nil {
			return err
		}
	}
	return nil
}

// compact appends the events of a sequence to the last one of its job set, if they
// are the same user's in the same queue. Across job sets the order may change.
func compact(all []sequence) []sequence {
	var sets []string
	bySet := map[string][]sequence{}
	for _, s := range all {
		done := bySet[s.set]
		if len(done) == 0 {
			sets = append(sets, s.set)
		}
		if n := len(done); n > 0 && done[n-1].queue == s.queue && done[n-1].user == s.user && slices.Equal(done[n-1].groups, s.groups) {
			done[n-1].events = append(done[n-1].events, s.events...)
			continue
		}
		s.events = slices.Clone(s.events)
		bySet[s.set] = append(done, s)
	}
	var compacted []sequence
	for _, set := range sets {
		compacted = append(compacted, bySet[set]...)
	}
	return compacted
}

// markers writes one marker into every partition.
func (p *publisher) markers(ctx context.Context, group string, now time.Time) error {
	for i := range p.log.Partitions() {
		s := sequence{queue: "armada-scheduler", set: "armada-scheduler", events: []event{
			{kind: evPartitionMarker, created: now, body: msg(nil).num(2, uint64(i)).str(3, group)},
		}}
		m := eventlog.Message{
			Payload:    s.encode(),
			Properties: []eventlog.Property{{Key: "armada_pulsar_partition", Value: strconv.Itoa(i)}},
		}
		if err := p.log.AppendSync(ctx, i, []eventlog.Message{m}); err != nil {
			return err
		}
	}
	return nil
}

// uuid is a random one of version 4.
func uuid(random *rand.Rand) string {
	var b [16]byte
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// ulid is a random one in lower case, later than those of earlier times.
func ulid(random *rand.Rand, now time.Time) string {
	const digits = "0123456789abcdefghjkmnpqrstvwxyz"
	b := make([]byte, 26)
	ms := uint64(now.UnixMilli())
	for i := 9; i >= 0; i-- {
		b[i] = digits[ms&31]
		ms >>= 5
	}
	for i := 10; i < len(b); i++ {
		b[i] = digits[random.IntN(len(digits))]
	}
	return string(b)
}

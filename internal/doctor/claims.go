package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
)

// The distance from the end, in messages, at which the search for the last claim
// begins. Each round that does not find it goes back eight times as far.
const (
	claimsFirst = 64
	claimsMost  = 1 << 15
)

// claims finds the last claim in each partition of decisions. It does not check whether
// the claim was accepted: that takes the whole chain.
func (d *Deployment) claims(ctx context.Context, t *Topic) []Fact[*Claim] {
	out := make([]Fact[*Claim], len(t.Ledgers.Value))
	topic, err := d.Cluster.Open(t.Name)
	if err == nil {
		defer func() { _ = topic.Close() }()
	}
	for p := range out {
		d.Progress(fmt.Sprintf("last claim in partition %d of decisions", p))
		if err != nil {
			out[p].Err = err
			continue
		}
		out[p].Value, out[p].Err = lastClaim(ctx, topic, p, t.Ledgers.Value[p])
	}
	return out
}

func lastClaim(ctx context.Context, topic eventlog.Topic, p int, l Ledgers) (*Claim, error) {
	for n := int64(claimsFirst); ; n *= 8 {
		after, whole := l.back(n)
		claim, err := claimAfter(ctx, topic, p, after)
		switch {
		case err != nil || claim != nil:
			return claim, err
		case whole:
			return nil, nil
		case n >= claimsMost:
			return nil, fmt.Errorf("%w: no claim among the last %d envelopes", ErrNotChecked, n)
		}
	}
}

// back returns the position n entries before the end, and whether that is the
// beginning. Decisions are not published in batches.
func (l *Ledgers) back(n int64) (after eventlog.Position, whole bool) {
	for i, ledger := range slices.Backward(l.Ledgers) {
		entries := ledger.Entries
		if i == len(l.Ledgers)-1 {
			entries = max(entries, l.CurrentEntries)
		}
		if entries > n {
			return eventlog.Position{Ledger: ledger.ID, Entry: entries - n - 1}, false
		}
		n -= entries
	}
	return eventlog.Start, true
}

// claimAfter returns the last claim after a position.
func claimAfter(ctx context.Context, topic eventlog.Topic, p int, after eventlog.Position) (*Claim, error) {
	var last *Claim
	var answered eventlog.Position
	err := readOn(ctx, topic, p, after, func(m *eventlog.Message) {
		e, err := chain.DecodeEnvelope(m.Payload)
		if err == nil {
			answered = e.InTo
		}
		if err != nil || e.InCount != 0 || len(e.Records) != 1 {
			return // not ours, or an envelope with decisions
		}
		r, err := chain.DecodeRecord(e.Records[0])
		if claim, ok := r.(*chain.OwnerClaim); err == nil && ok {
			last = &Claim{Epoch: claim.Epoch, Partitions: int(claim.Partitions), Time: time.Unix(0, m.Publish).UTC()}
		}
	})
	if last != nil {
		last.Answered = answered
	}
	return last, err
}

// after counts the entries after a position, without the entry at the position itself.
func (l *Ledgers) after(at eventlog.Position) (n int64) {
	for i, ledger := range l.Ledgers {
		entries := ledger.Entries
		if i == len(l.Ledgers)-1 {
			entries = max(entries, l.CurrentEntries)
		}
		switch {
		case ledger.ID > at.Ledger:
			n += entries
		case ledger.ID == at.Ledger:
			n += max(0, entries-at.Entry-1)
		}
	}
	return n
}

// readOn reads a partition from a position to its current end.
func readOn(ctx context.Context, topic eventlog.Topic, p int, after eventlog.Position, each func(*eventlog.Message)) error {
	end, err := topic.End(p)
	if err != nil || after.Compare(end) >= 0 {
		return err
	}
	r, err := topic.Open(p, after)
	if err != nil {
		return err
	}
	defer r.Close()
	chunk := make([]eventlog.Message, 64)
	for at := after; at.Compare(end) < 0; {
		n, err := r.Read(chunk)
		if err != nil {
			return err
		}
		for i := range chunk[:n] {
			each(&chunk[i])
			at = chunk[i].Position
		}
		if n > 0 {
			continue
		}
		select {
		case <-r.Changed():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

package evaluator

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/projection"
)

// inFlight is an envelope that was published and not read back yet, with what to commit
// when it is.
type inFlight struct {
	end     chain.End // after it
	env     *chain.Envelope
	records []chain.Record
	batch   projection.Batch // what changed since the last one; nil: that is left to a later one
	save    bool             // the batch is to be made durable
	flush   uint64
	after   meta // except for the envelope's own position in the log
	sentAt  int64
	// published is the publish time of the last message that the envelope covers.
	published int64
}

// liveReaders are the readers taken over from the follower, with what it had read ahead.
type liveReaders struct {
	events, decisions eventlog.Reader
	input             []eventlog.Message
	back              []eventlog.Message
	inputBuf, backBuf []eventlog.Message
	published         int64 // of the last message that fill processed
	past              chain.Past
}

func (o *Owner) startLive() (err error) {
	if o.live.events, o.live.decisions, err = o.follower.Readers(); err != nil {
		return err
	}
	o.live.back, o.live.input = o.follower.Pending()
	o.live.past = o.follower.Past()
	o.live.inputBuf = make([]eventlog.Message, o.cfg.MaxMessages)
	o.live.backBuf = make([]eventlog.Message, 64)
	o.tip, o.stored = o.positions.Chain, o.positions
	o.enter(running)
	return nil
}

// turn is one turn of a live owner's loop: what its steps hand on.
type turn struct {
	now      int64
	accepted []inFlight // our envelopes that the log holds now, in order
	save     bool       // what was committed is to be made durable
	sent     bool
}

// steps are the steps of a turn, and their order is the protocol (protocol.md 8): an
// envelope is published, read back in a later turn, committed, made durable, and its
// input acknowledged, the last two now and then (Config.SaveEvery). So a decision is in the log before it is in the state, and the
// state is durable before the broker may delete what it was folded from.
var steps = [...]func(*Owner, *turn) error{
	(*Owner).readBack,
	(*Owner).commitAccepted,
	(*Owner).commitRest,
	(*Owner).sync,
	(*Owner).acknowledge,
	(*Owner).publishNext,
}

// advanceLive takes one turn, and reports whether it did anything.
func (o *Owner) advanceLive(now int64) (bool, error) {
	t := turn{now: now}
	for _, step := range steps {
		if err := step(o, &t); err != nil {
			return false, err
		}
	}
	return t.sent || len(t.accepted) > 0, nil
}

// readBack reads the decision log, and takes our own envelopes out of the window.
func (o *Owner) readBack(t *turn) error {
	for {
		if len(o.live.back) == 0 {
			n, err := o.live.decisions.Read(o.live.backBuf)
			if err != nil {
				return fmt.Errorf("read decisions: %w", err)
			}
			if n == 0 {
				break
			}
			o.live.back = o.live.backBuf[:n]
		}
		if err := o.accept(t, &o.live.back[0]); err != nil {
			return err
		}
		o.live.back = o.live.back[1:]
	}
	if len(o.window) > 0 && t.now-o.window[0].sentAt > int64(o.cfg.ReadBackTimeout) {
		return fmt.Errorf("%w: envelope %d was not read back within %v", ErrLost, o.window[0].env.Seq, o.cfg.ReadBackTimeout)
	}
	return nil
}

// accept processes one message of the decision log. If an accepted envelope is not,
// byte for byte, the oldest one awaited, the partition is lost.
func (o *Owner) accept(t *turn, m *eventlog.Message) error {
	last := o.positions.Chain
	if n := len(t.accepted); n > 0 {
		last = t.accepted[n-1].end
	}
	if len(o.window) == 0 || o.window[0].env.Link != last.Link || o.window[0].end.Link != chain.Link(m.Payload) {
		return o.ignore(last, m)
	}
	w := o.window[0]
	o.window = o.window[1:]
	w.after.Positions = follow.Positions{Chain: w.end, Decisions: m.Position}
	o.live.past.Add(w.end)
	t.accepted = append(t.accepted, w)
	return o.point(PointReadBack)
}

// commitAccepted makes the state what it is after the accepted envelopes. It is not
// durable yet.
func (o *Owner) commitAccepted(t *turn) error {
	for i := range t.accepted {
		w := &t.accepted[i]
		if err := o.commit(w.batch, w.flush, w.after); err != nil {
			return err
		}
		t.save = t.save || w.save
		if o.cfg.Hooks.Committed != nil {
			o.cfg.Hooks.Committed(Commit{
				Envelope: w.env, Records: w.records, At: w.after.Positions.Decisions,
				Waited: time.Duration(t.now - w.sentAt), Published: w.published,
			})
		}
	}
	return nil
}

// due reports whether it is time to save the state.
func (o *Owner) due(now int64) bool {
	since := now - o.savedAt
	return o.draining || since < 0 || since >= int64(o.cfg.SaveEvery)
}

// commitRest commits what the envelopes left of their changes, when none is on its way that could take it along.
func (o *Owner) commitRest(t *turn) error {
	if len(o.window) > 0 || o.saved == o.positions || !o.due(t.now) {
		return nil
	}
	t.save, o.savedAt = true, t.now
	if o.stored == o.positions {
		return nil
	}
	batch := o.cfg.Store.NewBatch()
	flush, err := o.proc.State.Flush(batch)
	if err != nil {
		return err
	}
	return o.commit(batch, flush, o.metaAt(o.positions))
}

// sync makes what was committed durable.
func (o *Owner) sync(t *turn) error {
	if !t.save {
		return nil
	}
	if err := o.cfg.Store.Sync(); err != nil {
		return err
	}
	o.saved = o.stored
	return o.point(PointSynced)
}

// acknowledge lets the broker delete the input of what is durable.
func (o *Owner) acknowledge(t *turn) error {
	if !t.save {
		return nil
	}
	if o.cfg.Synced != nil {
		if err := o.cfg.Synced(o.saved); err != nil {
			return err
		}
	}
	return o.point(PointAcked)
}

// publishNext answers new input, and a new policy generation, with one more envelope
// if the window has room for it.
func (o *Owner) publishNext(t *turn) error {
	if err := o.cfg.Publisher.Err(); err != nil {
		if env := o.largest(); env != nil && errors.Is(err, eventlog.ErrTooLarge) {
			o.cfg.Fit.tooLarge(env)
		}
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	if o.unsent != nil {
		var err error
		t.sent, err = o.send()
		return err
	}
	if o.draining || len(o.window) >= o.cfg.Window {
		return nil
	}
	if err := o.cfg.Policies.Refresh(); err != nil {
		return err
	}
	var err error
	t.sent, err = o.answer(t.now)
	return err
}

// ignore processes a message of the decision log that is not, byte for byte, the oldest
// awaited envelope, which was built on the last accepted one: the message must be one
// to ignore.
func (o *Owner) ignore(last chain.End, m *eventlog.Message) error {
	acc, why, err := last.Offer(m.Payload)
	if why == chain.LostClaim {
		err = o.live.past.Contradicts(m.Payload)
	}
	switch {
	case err != nil:
		return fmt.Errorf("decision log at %v: %w", m.Position, err)
	case acc != nil:
		return fmt.Errorf("%w: envelope %d of epoch %d is not ours", ErrLost, acc.Envelope.Seq, acc.Envelope.Epoch)
	case o.cfg.Hooks.Ignored != nil:
		o.cfg.Hooks.Ignored(why)
	}
	return nil
}

// answer publishes one envelope: activations if there are any, then the records of the
// available input.
func (o *Owner) answer(now int64) (bool, error) {
	if len(o.live.input) == 0 {
		n, err := o.live.events.Read(o.live.inputBuf)
		if err != nil {
			return false, fmt.Errorf("read events: %w", err)
		}
		o.live.input = o.live.inputBuf[:n]
	}
	records := o.activations()
	if len(records) == 0 && len(o.live.input) == 0 {
		return false, nil
	}
	if err := o.point(PointReceived); err != nil {
		return false, err
	}
	env := &chain.Envelope{
		Seq: o.tip.Seq + 1, Link: o.tip.Link, Epoch: o.tip.Epoch, Owner: o.tip.Owner,
		InFrom: o.tip.InTo, InTo: o.tip.InTo,
	}
	for _, r := range records {
		env.Records = append(env.Records, chain.AppendRecord(nil, r))
	}
	records, err := o.fill(env, records)
	if err != nil {
		return false, err
	}
	if err := o.point(PointFolded); err != nil {
		return false, err
	}
	return true, o.publish(env, records, now)
}

// fill steps through the available input, up to the size of one envelope.
func (o *Owner) fill(env *chain.Envelope, records []chain.Record) ([]chain.Record, error) {
	size, input := 0, 0
	o.live.published = 0
	for len(o.live.input) > 0 && env.InCount < uint64(o.cfg.MaxMessages) && size < softEnvelopeBytes && input < softInputBytes {
		m := &o.live.input[0]
		if m.Position.Compare(env.InTo) <= 0 {
			return nil, fmt.Errorf("%w: events go back from %v to %v", eventlog.ErrCorrupt, env.InTo, m.Position)
		}
		fit := o.cfg.Fit.of(m.Position)
		if fit.alone && env.InCount > 0 {
			break
		}
		out, err := o.proc.StepAs(fit.form, m)
		if err != nil {
			return nil, err
		}
		for _, b := range out.Bytes {
			size += len(b)
			env.Records = append(env.Records, bytes.Clone(b))
		}
		records = append(records, kept(out.Records)...)
		input += len(m.Payload)
		env.InTo, env.InCount = m.Position, env.InCount+1
		o.live.published = m.Publish
		o.live.input[0] = eventlog.Message{} // nobody needs its payload any more
		o.live.input = o.live.input[1:]
		if fit.alone {
			break
		}
	}
	return records, nil
}

// kept copies records so that they outlive the Step that made them.
func kept(records []chain.Record) []chain.Record {
	for i, r := range records {
		if d, ok := r.(*chain.Decision); ok {
			own := *d
			records[i] = &own
		}
	}
	return records
}

// softEnvelopeBytes is the size at which an envelope is cut: one more parked message
// still fits below the limit of an envelope.
const softEnvelopeBytes = chain.MaxEnvelopeBytes - maxMessageBytes

// softInputBytes is how many bytes of input an envelope covers before it is cut: whoever
// follows the chain needs the whole input of an envelope in memory.
const softInputBytes = eventlog.ReadBytes

// maxMessageBytes is the largest message that Armada's producers send.
const maxMessageBytes = 4 << 20

// activations returns the records that must come first in the next envelope, and puts
// them in force here.
func (o *Owner) activations() []chain.Record {
	var front []chain.Record
	was := o.proc.Progress.Semantics
	next := nextSemantics(was, o.cfg.Semantics)
	if next != was {
		front = append(front, &chain.SemanticsActivated{Version: next})
	}
	if newest, set := o.cfg.Policies.Newest(); newest > o.proc.Progress.Generation || newest > 0 && budgetsBegin(was, next, set.Set) {
		front = append(front, Activation(newest, set.Set, next))
		o.proc.Rules = Rules{Generation: newest, Set: set.Set}
	}
	o.proc.Activate(front)
	return front
}

// publish sends an envelope and keeps what to commit when it comes back.
func (o *Owner) publish(env *chain.Envelope, records []chain.Record, now int64) error {
	raw := env.Append(nil)
	link := chain.Link(raw)
	in := inFlight{env: env, records: records, after: o.metaAt(follow.Positions{}), sentAt: now, published: o.live.published, save: o.due(now)}
	if in.save || o.proc.State.Unflushed() >= flushJobs {
		in.batch = o.cfg.Store.NewBatch()
		var err error
		if in.flush, err = o.proc.State.Flush(in.batch); err != nil {
			return err
		}
	}
	if in.save {
		o.savedAt = now
	}
	o.tip = chain.End{Seq: env.Seq, Link: link, Epoch: env.Epoch, Owner: env.Owner, InTo: env.InTo}
	in.end = o.tip
	o.window = append(o.window, in)
	o.unsent = raw
	_, err := o.send()
	return err
}

// flushJobs is how many changed jobs are written before the state is saved, so that no write takes long.
const flushJobs = 256

// send sends the last envelope of the window, unless the publisher has no room for it yet.
func (o *Owner) send() (bool, error) {
	env := o.window[len(o.window)-1].env
	err := o.cfg.Publisher.Publish(o.unsent)
	switch {
	case errors.Is(err, eventlog.ErrFull):
		return false, nil
	case errors.Is(err, eventlog.ErrTooLarge):
		o.cfg.Fit.tooLarge(env)
	}
	if err != nil {
		return false, fmt.Errorf("%w: publish envelope %d: %w", ErrLost, env.Seq, err)
	}
	o.unsent = nil
	return true, o.point(PointPublished)
}

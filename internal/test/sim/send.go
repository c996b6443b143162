package sim

import (
	"errors"
	"fmt"
	"slices"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
)

// sender is the publisher of one life of an owner. Whether, when and how often a message arrives is random.
type sender struct {
	m      *machine
	last   int64 // when its last send lands
	fenced bool
	broken bool // nothing is taken any more
}

// send is a message on its way.
type send struct {
	at, sent int64
	from     *sender
	raw      []byte
	failed   bool // the error was reported to the sender
	again    bool // it landed before
}

var errSend = errors.New("send failed")

const millisecond = int64(1e6)

func (s *sender) Publish(raw []byte) error {
	w := s.m.w
	switch {
	case s.broken:
		return fmt.Errorf("%w: closed", eventlog.ErrTransient)
	case s.fenced:
		w.saw(SawFenced)
		if w.one(4) { // it was on its way when the fence came
			s.put(raw, true)
		}
		return eventlog.ErrFenced
	case w.decisions.down():
		return s.outageSend(raw)
	case w.has(LostSends) && w.one(30):
		w.saw(SawNeverLanded)
		w.lost = append(w.lost, raw)
		w.logf("%v sends an envelope that will not land", s.m)
		return nil
	case w.has(FailedSends) && w.one(25):
		s.broken = w.one(2)
		if w.one(2) {
			s.put(raw, true)
		} else {
			w.lost = append(w.lost, raw)
		}
		w.logf("%v's send fails", s.m)
		if s.broken && w.one(2) {
			return nil // Err says it later
		}
		return errSend
	}
	s.put(raw, false)
	if w.has(Duplicates) && w.one(12) {
		again := *w.sends[len(w.sends)-1]
		again.at, again.again = again.at+w.rng.Int64N(3000*millisecond), true
		w.sends = append(w.sends, &again)
	}
	return nil
}

// put sets a send on its way.
func (s *sender) put(raw []byte, failed bool) {
	w := s.m.w
	x := &send{sent: w.now, from: s, raw: raw, failed: failed}
	x.at = max(s.last, w.now+1+w.rng.Int64N(20*millisecond))
	if w.has(LateSends) && w.one(14) {
		x.at += w.rng.Int64N(2 * readBackTimeout)
		if w.one(2) { // later messages wait for it
			s.last = x.at
		}
	} else {
		s.last = x.at
	}
	w.sends = append(w.sends, x)
}

func (s *sender) Err() error {
	switch {
	case s.broken:
		return fmt.Errorf("%w: connection cut", eventlog.ErrTransient)
	case s.fenced && s.m.w.one(3):
		return eventlog.ErrFenced
	}
	return nil
}

func (s *sender) Close() error { return nil }

// land writes what is due into the decision log.
func (w *world) land() {
	for !w.decisions.down() {
		first := -1
		for i, x := range w.sends {
			if x.at <= w.now && (first < 0 || x.at < w.sends[first].at) {
				first = i
			}
		}
		if first < 0 {
			return
		}
		x := w.sends[first]
		w.sends = slices.Delete(w.sends, first, first+1)
		w.waited(x)
		if x.failed {
			w.saw(SawFailedYetWritten)
		}
		if x.from.fenced {
			w.saw(SawAfterFence)
		}
		if x.again {
			w.saw(SawDuplicate)
		}
		w.write(x.from.m.part, x.raw, x)
	}
}

// write appends to a partition of the decision log. x is nil for a stranger.
func (w *world) write(p int, raw []byte, x *send) {
	at := w.decisions.append(p, eventlog.Message{Payload: raw, Publish: w.now})
	accepted, env, claim := w.chains[p].offer(raw, at)
	if accepted {
		w.checkLoss(p, w.chains[p].last())
		w.checkGrowth(p, w.chains[p].last())
		w.seeRecords(w.chains[p].last())
	}
	if x == nil || env == nil {
		w.logf("a stranger writes %v (accepted: %v)", at, accepted)
		return
	}
	w.logf("%v's envelope %d of epoch %d lands at %v (accepted: %v, claim: %v, answers up to %v)", x.from.m, env.Seq, env.Epoch, at, accepted, claim, env.InTo)
	late := w.now-x.sent > readBackTimeout
	switch {
	case claim && late && accepted:
		w.saw(SawClaimLateWins)
		fallthrough
	case claim && late:
		w.saw(SawClaimLate)
	case claim && !accepted:
		w.saw(SawClaimLost)
	case claim && env.Epoch > 1:
		w.saw(SawTakeover)
	case !claim && env.Epoch < w.chains[p].epoch:
		w.saw(SawZombie)
	}
}

// ignoredSight is what an owner's reader saw.
func ignoredSight(why chain.Ignored) (Sight, bool) {
	switch why {
	case chain.Malformed:
		return SawMalformed, true
	case chain.Repeated:
		return SawRepeated, true
	case chain.NotNext:
		return SawNotNext, true
	case chain.OldEpoch:
		return SawOldEpoch, true
	case chain.LostClaim:
		return SawLostClaim, true
	default:
		return 0, false
	}
}

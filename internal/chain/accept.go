package chain

import (
	"errors"
	"fmt"

	"github.com/refloat/refloat/internal/eventlog"
)

// End is a reader's position in a chain: everything about the envelopes accepted
// so far that it needs to check the next one.
type End struct {
	Seq   uint64 // of the last accepted envelope; 0: none
	Link  Hash   // of its bytes
	Epoch uint64 // of the last accepted claim; 0: none
	Owner OwnerID
	InTo  eventlog.Position // of the last accepted envelope
}

// Beginning is the end of an empty chain.
var Beginning = End{InTo: eventlog.Start}

// Ignored is the reason why an envelope was not accepted. It is a metric label.
type Ignored uint8

// The reasons for ignoring envelopes (protocol.md 2).
const (
	NotIgnored Ignored = iota
	Malformed          // not an envelope, or an invalid one
	Repeated           // seq is not greater than the last accepted one
	NotNext            // seq leaves a gap
	WrongLink          // follows a different envelope than the last accepted one
	WrongRange         // does not start where the last one ended
	OldEpoch           // written by a slow former owner
	LostClaim          // a claim that was superseded by another one
)

var ignoredNames = [...]string{"accepted", "malformed", "repeated", "not_next", "wrong_link", "wrong_range", "old_epoch", "lost_claim"}

// String returns the reason as a metric label.
func (i Ignored) String() string {
	if int(i) < len(ignoredNames) {
		return ignoredNames[i]
	}
	return fmt.Sprintf("ignored_%d", uint8(i))
}

// AllIgnored returns all reasons for which an envelope may be ignored.
func AllIgnored() []Ignored {
	return []Ignored{Malformed, Repeated, NotNext, WrongLink, WrongRange, OldEpoch, LostClaim}
}

// ErrMissing means that a log has lost envelopes, or input that they cover
// (protocol.md 3). Continuing could decide runs twice, so every reader must stop.
var ErrMissing = errors.New("a log lacks what it once held")

// ErrNewer means that a newer program wrote something to the log that this one does
// not know. Skipping it would silently lose decisions, so every reader must stop.
var ErrNewer = errors.New("the decision log was written by a newer version of refloat")

// Accepted is an envelope that was accepted.
type Accepted struct {
	Envelope *Envelope
	Records  []Record
	Claim    *OwnerClaim // not nil: the envelope is a claim
	Skips    bool        // the envelope is a HistoryAccepted: its range has no input
	End      End         // the reader's position after it
}

// Rebuilt returns the envelope's StateRebuilt, or nil.
func (a *Accepted) Rebuilt() *StateRebuilt {
	if len(a.Records) == 0 {
		return nil
	}
	r, _ := a.Records[0].(*StateRebuilt)
	return r
}

// Offer checks the next message of a decisions partition. It returns the accepted
// envelope, or nil and the reason why the message is ignored, or ErrMissing.
func (e End) Offer(raw []byte) (*Accepted, Ignored, error) {
	return e.offer(raw, (*Envelope).Decode)
}

// OfferFront is Offer for a reader that derives the records that follow from input, and compares bytes: as these records have
// one encoding, it need not decode them. If it accepts the envelope, Records has only those before them. A reader that finds a
// difference must ask Offer, from the beginning, because an envelope with a malformed record is ignored.
func (e End) OfferFront(raw []byte) (*Accepted, Ignored, error) {
	acc, _, err := e.offer(raw, (*Envelope).decodeFront)
	if err != nil || acc == nil {
		return e.Offer(raw)
	}
	return acc, NotIgnored, nil
}

func (e End) offer(raw []byte, decode func(*Envelope) ([]Record, error)) (*Accepted, Ignored, error) {
	a := &struct {
		Accepted
		envelope Envelope
	}{}
	env := &a.envelope
	if err := env.from(raw); err != nil {
		return nil, Malformed, nil //nolint:nilerr // a stranger's message is ignored, not an error
	}
	records, err := decode(env)
	if e.follows(env) {
		if newer := newer(env, records, err); newer != nil {
			return nil, NotIgnored, newer
		}
	}
	if err != nil {
		return nil, Malformed, nil //nolint:nilerr // as above
	}
	claim := claimIn(records)
	if claim != nil {
		if claim.Epoch != env.Epoch || claim.Owner != env.Owner {
			return nil, Malformed, nil
		}
		if claim.LastSeq > e.Seq {
			return nil, NotIgnored, fmt.Errorf("%w: epoch %d was claimed at envelope %d, but only %d are here", ErrMissing, claim.Epoch, claim.LastSeq, e.Seq)
		}
	} else if env.Epoch > e.Epoch || env.Epoch == e.Epoch && env.Owner != e.Owner {
		return nil, NotIgnored, fmt.Errorf("%w: envelope %d is of epoch %d, whose claim is not here (last claim: epoch %d)", ErrMissing, env.Seq, env.Epoch, e.Epoch)
	}
	if why := e.refuse(env, claim); why != NotIgnored {
		return nil, why, nil
	}
	next := End{Seq: env.Seq, Link: Link(raw), Epoch: env.Epoch, Owner: env.Owner, InTo: env.InTo}
	a.Accepted = Accepted{Envelope: env, Records: records, Claim: claim, Skips: acceptsHistory(records), End: next}
	return &a.Accepted, NotIgnored, nil
}

// follows reports whether an envelope is the next one of the current owner. Only that
// owner knows the hash of the previous envelope, so no one else writes one by accident.
func (e End) follows(env *Envelope) bool {
	return env.Epoch == e.Epoch && env.Owner == e.Owner && e.refuse(env, nil) == NotIgnored
}

// newer returns ErrNewer for an envelope that activates an unknown version of
// the semantics, or that could not be decoded because of an unknown record or field.
func newer(env *Envelope, records []Record, decoded error) error {
	if decoded != nil {
		records = env.readable()
	}
	for _, r := range records {
		if s, ok := r.(*SemanticsActivated); ok && s.Version > NewestSemantics {
			return fmt.Errorf("%w: envelope %d activates version %d of the semantics, this program knows versions up to %d; upgrade it",
				ErrNewer, env.Seq, s.Version, NewestSemantics)
		}
	}
	if errors.Is(decoded, errUnknown) {
		return fmt.Errorf("%w: it cannot be read by this program, which knows semantics up to version %d; upgrade it: %w", ErrNewer, NewestSemantics, decoded)
	}
	return nil
}

// readable returns the records at the front of an envelope up to one that cannot be decoded.
func (e *Envelope) readable() (records []Record) {
	for _, raw := range e.Records {
		r, err := DecodeRecord(raw)
		if err != nil || r.FromInput() {
			break
		}
		records = append(records, r)
	}
	return records
}

func claimIn(records []Record) *OwnerClaim {
	if len(records) == 0 {
		return nil
	}
	claim, _ := records[0].(*OwnerClaim)
	return claim
}

func (e End) refuse(env *Envelope, claim *OwnerClaim) Ignored {
	switch {
	case claim == nil && env.Epoch < e.Epoch:
		return OldEpoch
	case claim != nil && (claim.LastSeq != e.Seq || claim.LastLink != e.Link || claim.Epoch != e.Epoch+1):
		return LostClaim
	case env.Seq <= e.Seq:
		return Repeated
	case env.Seq != e.Seq+1:
		return NotNext
	case env.Link != e.Link:
		return WrongLink
	case env.InFrom != e.InTo:
		return WrongRange
	}
	return NotIgnored
}

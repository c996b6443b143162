package chain

import (
	"errors"
	"fmt"

	"github.com/refloat/refloat/internal/eventlog"
)

// End is where a reader stands in a chain: what it must know of everything
// accepted so far to judge the next envelope.
type End struct {
	Seq   uint64 // of the last accepted envelope; 0: none
	Link  Hash   // of its bytes
	Epoch uint64 // of the last accepted claim; 0: none
	Owner OwnerID
	InTo  eventlog.Position // of the last accepted envelope
}

// Beginning is the end of an empty chain.
var Beginning = End{InTo: eventlog.Start}

// Ignored says why an envelope was not accepted. It is a metric label.
type Ignored uint8

// Why envelopes are ignored (PROTOCOL 2).
const (
	NotIgnored Ignored = iota
	Malformed          // no envelope of ours, or one that breaks its own rules
	Repeated           // seq is not above the last accepted one
	NotNext            // seq leaves a gap
	WrongLink          // follows another envelope than the last accepted one
	WrongRange         // starts elsewhere than where the last one ended
	OldEpoch           // a slow old owner
	LostClaim          // a claim that another one overtook
)

var ignoredNames = [...]string{"accepted", "malformed", "repeated", "not_next", "wrong_link", "wrong_range", "old_epoch", "lost_claim"}

// String is the reason as a metric label.
func (i Ignored) String() string {
	if int(i) < len(ignoredNames) {
		return ignoredNames[i]
	}
	return fmt.Sprintf("ignored_%d", uint8(i))
}

// AllIgnored are the reasons for which an envelope may be ignored.
func AllIgnored() []Ignored {
	return []Ignored{Malformed, Repeated, NotNext, WrongLink, WrongRange, OldEpoch, LostClaim}
}

// ErrMissing says that a log lacks what it once held: envelopes, or input that they
// answer (PROTOCOL 3). Going on could decide twice, so whoever reads must stop.
var ErrMissing = errors.New("a log lacks what it once held")

// ErrNewer says that the log was written by a newer program, in a way that this one
// does not know. Passing over it would lose decisions without a word, so whoever
// reads must stop.
var ErrNewer = errors.New("the decision log was written by a newer version of refloat")

// Accepted is an envelope that the rule let in.
type Accepted struct {
	Envelope *Envelope
	Records  []Record
	Claim    *OwnerClaim // not nil: the envelope is a claim
	Skips    bool        // the envelope is a HistoryAccepted: its range has no input
	End      End         // where the reader stands after it
}

// Rebuilt is the envelope's StateRebuilt, or nil.
func (a *Accepted) Rebuilt() *StateRebuilt {
	if len(a.Records) == 0 {
		return nil
	}
	r, _ := a.Records[0].(*StateRebuilt)
	return r
}

// Offer judges the next message of a decisions partition. It returns either
// what was accepted, or nil and why it is ignored, or ErrMissing.
func (e End) Offer(raw []byte) (*Accepted, Ignored, error) {
	env, err := DecodeEnvelope(raw)
	if err != nil {
		return nil, Malformed, nil //nolint:nilerr // a stranger's message is ignored, not an error
	}
	records, err := env.Decode()
	if e.follows(env) {
		if newer := newer(env, err); newer != nil {
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
	return &Accepted{Envelope: env, Records: records, Claim: claim, Skips: acceptsHistory(records), End: next}, NotIgnored, nil
}

// follows says whether an envelope is the next one of the owner in force. Only that
// owner knows the hash of the envelope before, so no stranger writes one by mistake.
func (e End) follows(env *Envelope) bool {
	return env.Epoch == e.Epoch && env.Owner == e.Owner && e.refuse(env, nil) == NotIgnored
}

// newer returns ErrNewer for an envelope that activates a version of SEMANTICS that
// this program does not know, or that could not be decoded because it holds a record
// or a field that this program does not know.
func newer(env *Envelope, decoded error) error {
	for _, raw := range env.Records {
		r, err := DecodeRecord(raw)
		if err != nil || r.FromInput() {
			break
		}
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

package evaluator

import (
	"maps"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
)

// Form is how a message's records are written. Which form a message has is a fact of
// the chain, as is which envelope holds it: it depends on what the log takes.
type Form uint8

// The forms, each tried where the one before does not fit into a message of the log.
const (
	// InFull: what is parked stands in its record, byte for byte.
	InFull Form = iota
	// Brief: of what is parked, digest and length.
	Brief
	// Refused: the whole message is parked, by digest and length, and nothing of it
	// is folded, since the records of its runs do not fit.
	Refused
)

// Fit remembers which messages of a partition had records that the log did not take,
// until an envelope that covers them is accepted. Owners of the partition share it, life
// after life. The zero value is ready.
type Fit struct {
	messages map[eventlog.Position]*fitting
}

type fitting struct {
	form Form
	// An envelope that was too large is first tried without the messages before.
	alone bool
}

func (f *Fit) of(at eventlog.Position) fitting {
	if f == nil || f.messages[at] == nil {
		return fitting{}
	}
	return *f.messages[at]
}

// tooLarge notes that the log did not take an envelope: its last message is the one
// that went over the limit.
func (f *Fit) tooLarge(env *chain.Envelope) {
	if f == nil || env.InCount == 0 {
		return
	}
	if f.messages == nil {
		f.messages = map[eventlog.Position]*fitting{}
	}
	m := f.messages[env.InTo]
	if m == nil {
		m = &fitting{}
		f.messages[env.InTo] = m
	}
	if m.alone || env.InCount == 1 {
		m.form = min(m.form+1, Refused)
	}
	m.alone = true
}

// accepted forgets the messages up to a position: no owner decides them again.
func (f *Fit) accepted(to eventlog.Position) {
	if f != nil {
		maps.DeleteFunc(f.messages, func(at eventlog.Position, _ *fitting) bool { return at.Compare(to) <= 0 })
	}
}

// largest is the envelope of the window that is most likely the one that was refused,
// where the log said so only later.
func (o *Owner) largest() (env *chain.Envelope) {
	most := -1
	for _, w := range o.window {
		size := 0
		for _, r := range w.env.Records {
			size += len(r)
		}
		if size > most {
			most, env = size, w.env
		}
	}
	return env
}

package evaluator

import (
	"bytes"
	"fmt"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/projection"
)

// Logged walks the records of one accepted envelope.
type Logged struct {
	Records []chain.Record // none, if they were not decoded
	Bytes   [][]byte
}

// LoggedIn returns the records of an accepted envelope that follow from its input.
func LoggedIn(a *chain.Accepted) *Logged {
	l, n := &Logged{Records: a.Records, Bytes: a.Envelope.Records}, 0
	for n < len(l.Records) && !l.Records[n].FromInput() {
		n++
	}
	l.Skip(n)
	return l
}

// Replay folds a message and applies the decisions in the log on it, removing them from
// l. It returns ErrDiverged if anything but the verdicts differs between the log and the
// result of folding.
func (p *Processor) Replay(m *eventlog.Message, l *Logged) error {
	rest := *l
	err := p.process(rest.FormOf(m), m, logged{p, &rest})
	if err != nil {
		return err
	}
	for i, b := range p.out.Bytes {
		if i >= len(rest.Bytes) || !bytes.Equal(b, rest.Bytes[i]) {
			return fmt.Errorf("%w: record %d of the message at %v", ErrDiverged, i, m.OriginPosition())
		}
	}
	n := len(p.out.Bytes)
	l.Records, l.Bytes = rest.Records[n:], rest.Bytes[n:]
	return nil
}

// Skip removes the first n records.
func (l *Logged) Skip(n int) {
	l.Records, l.Bytes = l.Records[min(n, len(l.Records)):], l.Bytes[n:]
}

// FormOf is the form that a message has in the log: what is parked comes first.
func (l *Logged) FormOf(m *eventlog.Message) Form {
	form := InFull
	for _, b := range l.Bytes {
		parked, ok := chain.ParkedIn(b)
		switch {
		case !ok || parked.Position != m.OriginPosition():
			return form
		case parked.Reason == events.TooLarge && parked.Keeps(m.Payload):
			return Refused
		case parked.Length > 0:
			form = Brief
		}
	}
	return form
}

// logged answers projection.Questions by what is already in the log: the records of an envelope, from the current
// message on. The place of each among them says what it answers.
type logged struct {
	p    *Processor
	rest *Logged
}

// next returns the record that the log has where the next one will be made, or nil.
func (l logged) next() chain.Record {
	if i := len(l.p.State.Effects()); i < len(l.rest.Records) {
		return l.rest.Records[i]
	}
	return nil
}

func (l logged) Decide(f *projection.Failure) (projection.Decided, error) {
	if d, ok := l.next().(*chain.Decision); ok && d.JobID == f.JobID && d.RunID == f.RunID && d.Position == l.p.at {
		return l.p.decided(d), nil
	}
	return projection.Decided{}, fmt.Errorf("%w: no decision on run %s of job %s, which failed at %v", ErrDiverged, f.RunID, f.JobID, l.p.at)
}

func (l logged) Bind(first *projection.Job, name, _ string, _ bool, _ uint32) (projection.Bound, policy.FindingReason, error) {
	switch r := l.next().(type) {
	case *chain.GroupBound:
		if r.JobID == first.ID && r.Position == l.p.at {
			return boundBy(r), 0, nil
		}
	case *chain.GroupFinding:
		if r.JobID == first.ID && r.Position == l.p.at && r.Reason != 0 {
			return projection.Bound{}, r.Reason, nil
		}
	}
	return projection.Bound{}, 0, fmt.Errorf("%w: nothing on group %q, which job %s names at %v", ErrDiverged, name, first.ID, l.p.at)
}

func boundBy(r *chain.GroupBound) projection.Bound {
	return projection.Bound{Digest: r.Digest, Shape: r.Shape, MaxRestarts: r.MaxRestarts}
}

func (l logged) Acts(_ string, e projection.Effect) bool {
	i := len(l.p.State.Effects())
	if i >= len(l.rest.Bytes) {
		return false
	}
	l.p.buf = chain.AppendRecord(l.p.buf[:0], l.p.recordOf(e))
	return bytes.Equal(l.rest.Bytes[i], l.p.buf)
}

func (l logged) RestartAt(j *projection.Job, _, _ int64) (int64, error) {
	if r, ok := l.next().(*chain.MemberChange); ok && r.Change == chain.MemberRestart && r.JobID == j.ID && r.Position == l.p.at {
		return r.RetryAfter, nil
	}
	return 0, fmt.Errorf("%w: no restart of job %s at %v", ErrDiverged, j.ID, l.p.at)
}

func (l logged) UnitEnded(u *projection.UnitEnd) (projection.Verdict, bool) {
	r, ok := l.next().(*chain.UnitEnded)
	if !ok || r.Position != l.p.at || !ends(r, u) {
		return projection.Verdict{}, false
	}
	return verdictOf(r), true
}

// ends reports whether a record is about this end of this unit.
func ends(r *chain.UnitEnded, u *projection.UnitEnd) bool {
	return r.Queue == u.Group.Queue && r.JobSet == u.Group.Set && r.Member.Group == u.Group.Name && r.Member.Part == u.Unit.Part.Name &&
		r.Member.Replica == u.Unit.Replica && r.Succeeded == u.Succeeded
}

func verdictOf(r *chain.UnitEnded) projection.Verdict {
	v := &r.Verdict
	return projection.Verdict{Action: v.Action, Reason: v.Reason, Rule: v.Rule, Used: v.RestartsUsed, Max: v.MaxRestarts, Keep: v.Keep, Refused: v.Refused}
}

func (l logged) Order(waiting []int) bool {
	places := map[[2]string]int{}
	for i := len(l.p.State.Effects()); i < len(l.rest.Records); i++ {
		if p, ok := chain.PositionOf(l.rest.Records[i]); !ok || p != l.p.at {
			break
		}
		switch r := l.rest.Records[i].(type) {
		case *chain.Decision:
			places[[2]string{r.JobID, r.RunID}] = i
		case *chain.NotDecided:
			places[[2]string{r.JobID, r.RunID}] = i
		}
	}
	sortRuns(l.p.State, waiting, func(run [2]string) int { return places[run] })
	return true
}

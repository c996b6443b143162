package evaluator

import (
	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/projection"
)

// partial answers projection.Questions in a rebuild: by the records of an envelope of which not every message
// is known any more, found by what they are about.
type partial struct {
	p         *Processor
	decisions map[[2]string]*chain.Decision // by job and run
	bound     map[jobAt]*chain.GroupBound
	restarts  map[jobAt][]*chain.MemberChange // a message may restart a job more than once
	units     []*chain.UnitEnded
	bytes     map[string]bool // of the records of groups
	refused   map[eventlog.Position]*chain.Parked
	orders    map[[2]string]*chain.OrderAnswered // by job and order
}

// jobAt is a job in a message: an envelope may have records of several on it.
type jobAt struct {
	job string
	at  eventlog.Position
}

func partialOf(l *Logged, p *Processor) *partial {
	s := &partial{
		p:         p,
		decisions: make(map[[2]string]*chain.Decision, len(l.Records)), bound: map[jobAt]*chain.GroupBound{},
		restarts: map[jobAt][]*chain.MemberChange{}, bytes: map[string]bool{}, refused: map[eventlog.Position]*chain.Parked{},
		orders: map[[2]string]*chain.OrderAnswered{},
	}
	for i, r := range l.Records {
		switch r := r.(type) {
		case *chain.Decision:
			s.decisions[[2]string{r.JobID, r.RunID}] = r
		case *chain.GroupBound:
			s.bound[jobAt{r.JobID, r.Position}] = r
		case *chain.MemberChange:
			s.bytes[string(l.Bytes[i])] = true
			if r.Change == chain.MemberRestart {
				key := jobAt{r.JobID, r.Position}
				s.restarts[key] = append(s.restarts[key], r)
			}
		case *chain.UnitEnded:
			s.units = append(s.units, r)
		case *chain.GroupEnded:
			s.bytes[string(l.Bytes[i])] = true
		case *chain.OrderAnswered:
			s.orders[[2]string{r.JobID, r.OrderID}] = r
		case *chain.Parked:
			if r.Reason == events.TooLarge {
				s.refused[r.Position] = r
			}
		}
	}
	return s
}

func (s *partial) Decide(f *projection.Failure) (projection.Decided, error) {
	if d := s.decisions[[2]string{f.JobID, f.RunID}]; d != nil && d.Position == s.p.at {
		return s.p.decided(d), nil
	}
	f.Skip = projection.Unanswered
	return projection.Decided{}, nil
}

func (s *partial) Bind(first *projection.Job, _, _ string, _ bool, _ uint32) (projection.Bound, policy.FindingReason, error) {
	if r := s.bound[jobAt{first.ID, s.p.at}]; r != nil {
		b := boundBy(r)
		b.Name = r.Group // it may follow one that is gone
		return b, 0, nil
	}
	return projection.Bound{}, policy.NoSuchPolicy, nil
}

func (s *partial) Acts(_ string, e projection.Effect) bool {
	return s.bytes[string(chain.AppendRecord(nil, s.p.recordOf(e)))]
}

func (s *partial) RestartAt(j *projection.Job, base, _ int64) (int64, error) {
	key := jobAt{j.ID, s.p.at}
	rest := s.restarts[key]
	if len(rest) == 0 {
		return base, nil
	}
	s.restarts[key] = rest[1:]
	return rest[0].RetryAfter, nil
}

func (s *partial) UnitEnded(u *projection.UnitEnd) (projection.Verdict, bool) {
	for _, r := range s.units {
		if r.Position == s.p.at && ends(r, u) {
			return verdictOf(r), true
		}
	}
	return projection.Verdict{}, false
}

func (s *partial) Order(waiting []int) bool {
	sortRuns(s.p.State, waiting, func(run [2]string) int {
		if d := s.decisions[run]; d != nil && d.Position == s.p.at {
			return int(d.Number)
		}
		return 0 // it has no effect on the others
	})
	return true
}

// Rebuild folds messages of an envelope with the records in the log on them, whatever else
// folding gives: what preceded the messages that are left is unknown. Progress is taken
// from the log.
func (p *Processor) Rebuild(messages []eventlog.Message, l *Logged) error {
	progress := p.Progress
	from := partialOf(l, p)
	for i := range messages {
		form := InFull
		if r := from.refused[messages[i].OriginPosition()]; r != nil && r.Keeps(messages[i].Payload) {
			form = Refused
		}
		if err := p.process(form, &messages[i], from); err != nil {
			return err
		}
	}
	for i, r := range l.Records {
		progress.Running = progress.Running.Extend(l.Bytes[i])
		if d, ok := r.(*chain.Decision); ok {
			progress.Decisions = d.Number
		}
	}
	p.Progress = progress
	return nil
}

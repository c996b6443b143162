package schedulerdb

// order puts the operations of a message into the order in which Armada's
// ingester applies them: it gathers those of one kind, so it moves an operation
// forward past all that it takes for independent of it. They are not all: when a
// message says of a job that it was asked to be cancelled and that it is
// cancelled, the end comes first, and the request then finds a job that is over.
func order(effects []Effect) []Effect {
	if len(effects) < 2 {
		return effects
	}
	var groups []*group
	for _, e := range effects {
		i := len(groups)
		for i > 0 && !groups[i-1].merges(e.Op) && movesBefore(e.Op, groups[i-1]) {
			i--
		}
		if i > 0 && groups[i-1].merges(e.Op) {
			groups[i-1].add(e)
			continue
		}
		groups = append(groups, nil)
		copy(groups[i+1:], groups[i:])
		groups[i] = newGroup(e)
	}
	ordered := make([]Effect, 0, len(effects))
	for _, g := range groups {
		ordered = append(ordered, g.effects...)
	}
	return ordered
}

type setKey struct{ queue, jobSet string }

// group is operations of one kind that stand together.
type group struct {
	kind    any // equal for those that belong together
	effects []Effect
	// What InsertJob and InsertRun define, and what operations on sets affect.
	jobs, runs map[string]bool
	sets       map[setKey]bool
}

func newGroup(e Effect) *group {
	g := &group{kind: kindOf(e.Op)}
	switch e.Op.(type) {
	case *InsertJob, *InsertRun, *SetSetPriority, *RequestSetCancel:
		g.jobs, g.runs, g.sets = map[string]bool{}, map[string]bool{}, map[setKey]bool{}
	}
	g.add(e)
	return g
}

func (g *group) add(e Effect) {
	g.effects = append(g.effects, e)
	switch o := e.Op.(type) {
	case *InsertJob:
		g.jobs[o.JobID], g.sets[setKey{o.Queue, o.JobSet}] = true, true
	case *InsertRun:
		g.runs[o.RunID], g.jobs[o.JobID], g.sets[setKey{o.Queue, o.JobSet}] = true, true, true
	case *SetSetPriority:
		g.sets[setKey{o.Queue, o.JobSet}] = true
	case *RequestSetCancel:
		g.sets[setKey{o.Queue, o.JobSet}] = true
	}
}

func (g *group) merges(op Op) bool { return g.kind == kindOf(op) }

// kindOf is what must be equal for operations to go together: their type, and
// what Armada keeps once for all of them.
func kindOf(op Op) any {
	switch o := op.(type) {
	case *MarkRun:
		return o.Stage
	case *SetPriority:
		return [...]any{(*SetPriority)(nil), o.Queue, o.JobSet, o.Priority, o.User}
	case *SetSetPriority:
		return [...]any{(*SetSetPriority)(nil), o.User}
	case *RequestCancel:
		return [...]any{(*RequestCancel)(nil), o.User, o.Reason}
	case *RequestSetCancel:
		return [...]any{(*RequestSetCancel)(nil), o.User, o.Reason}
	case *RequestPreemption:
		return [...]any{(*RequestPreemption)(nil), o.User}
	case *InsertJob:
		return (*InsertJob)(nil)
	case *InsertRun:
		return (*InsertRun)(nil)
	case *SetQueued:
		return (*SetQueued)(nil)
	case *SetSchedulingInfo:
		return (*SetSchedulingInfo)(nil)
	case *SetValidated:
		return (*SetValidated)(nil)
	case *SucceedJob:
		return (*SucceedJob)(nil)
	case *FailJob:
		return (*FailJob)(nil)
	case *CancelJob:
		return (*CancelJob)(nil)
	case *FailRun:
		return (*FailRun)(nil)
	case *InsertRunError:
		return (*InsertRunError)(nil)
	case *InsertMarker:
		return (*InsertMarker)(nil)
	}
	return op
}

// movesBefore says whether Armada puts an operation before a group of others.
func movesBefore(op Op, g *group) bool {
	_, insertsJobs := g.kind.(*InsertJob)
	_, insertsRuns := g.kind.(*InsertRun)
	first := g.effects[0].Op
	onSet := false
	switch first.(type) {
	case *SetSetPriority, *RequestSetCancel:
		onSet = true
	}
	defines := func(job string) bool { return insertsJobs && g.jobs[job] }
	switch o := op.(type) {
	case *InsertJob:
		return !onSet || !g.sets[setKey{o.Queue, o.JobSet}]
	case *InsertRun:
		return (!onSet || !g.sets[setKey{o.Queue, o.JobSet}]) && !defines(o.JobID)
	case *SetSetPriority:
		_, priorities := first.(*SetPriority)
		return !priorities && (!insertsJobs || !g.sets[setKey{o.Queue, o.JobSet}])
	case *RequestSetCancel:
		return !insertsJobs && !insertsRuns || !g.sets[setKey{o.Queue, o.JobSet}]
	case *SetPriority:
		_, priorities := first.(*SetSetPriority)
		return !priorities && !defines(o.JobID)
	case *RequestCancel:
		return !insertsJobs && !insertsRuns || !g.jobs[o.JobID]
	case *RequestPreemption:
		return !insertsJobs && !insertsRuns || !g.jobs[o.JobID]
	case *SetQueued:
		return !defines(o.JobID)
	case *SetSchedulingInfo:
		return !defines(o.JobID)
	case *SetValidated:
		return !defines(o.JobID)
	case *SucceedJob:
		return !defines(o.JobID)
	case *FailJob:
		return !defines(o.JobID)
	case *CancelJob:
		return !defines(o.JobID)
	case *MarkRun:
		return !insertsRuns || !g.runs[o.RunID]
	case *FailRun:
		return !insertsRuns || !g.runs[o.RunID]
	case *InsertRunError:
		return true
	}
	return false // InsertMarker
}

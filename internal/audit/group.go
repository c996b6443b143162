package audit

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy"
)

// GroupFields are the fields of a decision on a member of a group, as JSON prints them;
// none of a job in no group.
type GroupFields struct {
	Group   string  `json:"group,omitempty"`
	Part    string  `json:"part,omitempty"`
	Replica *uint32 `json:"replica,omitempty"`
	Index   *uint32 `json:"index,omitempty"`
	// PolicyGeneration is that of the policies: in a decision on a member, generation is that of
	// its unit.
	PolicyGeneration *uint64 `json:"policyGeneration,omitempty"`
	// The rest only where the failure failed the unit.
	UnitReason   string  `json:"unitReason,omitempty"`
	GroupAction  string  `json:"groupAction,omitempty"`
	GroupRule    *string `json:"groupRule,omitempty"`
	RestartsUsed *uint32 `json:"restartsUsed,omitempty"`
	MaxRestarts  *uint32 `json:"maxRestarts,omitempty"`
}

func groupFields(d *chain.Decision) GroupFields {
	var f GroupFields
	if m := d.Member; m != nil {
		f.Group, f.Part, f.Replica, f.Index, f.PolicyGeneration = m.Group, m.Part, &m.Replica, &m.Index, &d.Generation
	}
	if v := d.Group; v != nil {
		f.UnitReason, f.GroupAction, f.GroupRule = v.Reason.String(), v.Action.String(), &v.Rule
		f.RestartsUsed, f.MaxRestarts = &v.RestartsUsed, &v.MaxRestarts
	}
	return f
}

// groupOther converts a record of a group for JSON output.
func groupOther(partition int, r chain.Record) (Other, bool) {
	out := Other{Partition: partition}
	switch r := r.(type) {
	case *chain.GroupBound:
		out.Record, out.Position, out.Queue, out.JobSet, out.JobID = "GroupBound", positionOf(r.Position), r.Queue, r.JobSet, r.JobID
		out.Group, out.Policy, out.MaxRestarts = r.Group, r.Policy, &r.MaxRestarts
		if out.Policy != "" {
			out.Digest = fmt.Sprintf("%x", r.Digest)
		}
		for i := range r.Shape.Parts {
			out.Parts = append(out.Parts, PartOf(&r.Shape, i))
		}
		out.Success = SuccessOf(&r.Shape)
	case *chain.GroupFinding:
		out.Record, out.Position, out.Queue, out.JobSet, out.JobID = "GroupFinding", positionOf(r.Position), r.Queue, r.JobSet, r.JobID
		out.Group, out.Reason = r.Group, r.Reason.String()
	case *chain.MemberChange:
		out.Record, out.Position, out.Queue, out.JobSet, out.JobID = r.Change.String(), positionOf(r.Position), r.Queue, r.JobSet, r.JobID
		out.RunID = r.RunID
		out.place(&r.Member)
		out.Index = &r.Member.Index
		if r.Change == chain.MemberRestart {
			out.RetryAfter = timeOf(r.RetryAfter)
		}
	case *chain.UnitEnded:
		out.Record, out.Position, out.Queue, out.JobSet = "UnitEnded", positionOf(r.Position), r.Queue, r.JobSet
		out.place(&r.Member)
		v := &r.Verdict
		out.State, out.Reason, out.Rule, out.Action = "Failed", v.Reason.String(), v.Rule, v.Action.String()
		out.RestartsUsed, out.MaxRestarts = &v.RestartsUsed, &v.MaxRestarts
		if r.Succeeded {
			out.State = "Succeeded"
		}
	case *chain.GroupEnded:
		out.Record, out.Position, out.Queue, out.JobSet = "GroupEnded", positionOf(r.Position), r.Queue, r.JobSet
		out.Group, out.State, out.Reason, out.Rule = r.Group, r.State.String(), r.Reason.String(), r.Rule
	default:
		return Other{}, false
	}
	return out, true
}

func (o *Other) place(m *chain.Member) {
	o.Group, o.Part, o.Replica, o.Generation = m.Group, m.Part, &m.Replica, &m.Generation
}

// Part is a part of a group as JSON prints it.
type Part struct {
	Name        string   `json:"name"`
	Replicas    uint32   `json:"replicas"`
	Members     uint32   `json:"members"`
	MinMembers  uint32   `json:"minMembers"`
	After       []string `json:"after,omitempty"`
	Parallelism uint32   `json:"parallelism,omitempty"`
	AfterReady  []string `json:"afterReady,omitempty"`

	SuccessRules []SuccessRule `json:"successRules,omitempty"`
}

// SuccessRule is when a unit has succeeded before minMembers have.
type SuccessRule struct {
	Indexes string `json:"indexes"`
	Count   uint32 `json:"count"`
}

// Success is when a group has succeeded, if not when all units of all parts have.
type Success struct {
	Operator string   `json:"operator"`        // All or Any
	Parts    []string `json:"parts,omitempty"` // none: all
}

// PartOf returns a part of a shape, by its index.
func PartOf(s *policy.Shape, i int) Part {
	p := &s.Parts[i]
	out := Part{Name: p.Name, Replicas: p.Replicas, Members: p.Members, MinMembers: p.MinMembers, Parallelism: p.Parallelism}
	out.After, out.AfterReady = namesOf(s, p.After), namesOf(s, p.AfterReady)
	for _, r := range p.SuccessRules {
		out.SuccessRules = append(out.SuccessRules, SuccessRule{r.Indexes.String(), r.Count})
	}
	return out
}

// SuccessOf returns when a group of this shape has succeeded; nil: when all units have.
func SuccessOf(s *policy.Shape) *Success {
	switch {
	case s.Success.Any:
		return &Success{"Any", namesOf(s, s.Success.Parts)}
	case len(s.Success.Parts) > 0:
		return &Success{"All", namesOf(s, s.Success.Parts)}
	}
	return nil
}

func namesOf(s *policy.Shape, parts []uint32) (names []string) {
	for _, i := range parts {
		if int(i) < len(s.Parts) {
			names = append(names, s.Parts[i].Name)
		}
	}
	return names
}

// GroupSentence explains in one sentence what a group did about a unit that ended. why is why
// the unit is left failed where no rule says so; "": that is unknown.
func GroupSentence(v *chain.GroupVerdict, why string) string {
	s := "the unit failed (" + v.Reason.String() + "), and "
	if v.Reason == policy.NoUnitReason {
		s = "the unit succeeded, and "
	}
	switch rule := groupRule(v.Rule); {
	case v.Action == policy.NoGroupAction:
		return strings.TrimSuffix(s, ", and ")
	case v.Refused && v.RestartsUsed == 0 && v.MaxRestarts == 0:
		s += rule + " would restart it, but " + noRestarts
		if v.Rule != "" { // which may be one that counts no restarts
			s += ", or the rule's own limit is used up"
		}
		s += "; the group fails"
	case v.Refused && v.RestartsUsed < v.MaxRestarts:
		s += fmt.Sprintf("%s would restart it, but the rule's own limit is used up (%s); the group fails", rule, restartsOf(v))
	case v.Refused:
		s += fmt.Sprintf("%s would restart it, but the restarts are used up: %s; the group fails", rule, restartsOf(v))
	case v.Rule == policy.RestartsRule && v.Action.Restarts():
		s += "`restarts` of its part restarts the unit"
	case v.Action.Restarts():
		s += fmt.Sprintf("%s restarts %s: %s", rule, scopeOf(v.Action), restartsOf(v))
	case v.Action == policy.FailGroup && v.Rule == "": // the default of a policy that has rules or maxRestarts is a restart
		s += "no group policy with rules or maxRestarts applies: by default, the group fails with it"
	case v.Action == policy.FailGroup:
		s += rule + " fails the group"
	case v.Action == policy.Halt:
		s += rule + " leaves it failed and halts the group: nothing that is held is started any more"
	case v.Rule == "" && v.Reason != policy.MemberCancelled: // no default leaves a unit failed
		s += "stays failed, though no rule says so: " + cmp.Or(why, whyNotRestartedUnknown) + "; the rest of the group goes on"
	default:
		s += rule + " leaves it failed"
		if v.Reason == policy.MemberCancelled { // also by a rule that restarts units
			s += ": too few members are left, and a unit with a cancelled member is never restarted"
		}
		s += "; the rest of the group goes on"
	}
	if v.Action.Restarts() && v.Keep {
		s += ", without the members that succeeded"
	}
	if v.Noted {
		s += "; nothing of that is done: the queue is in shadow, or retries are not enabled"
	}
	return s
}

// whyNotRestartedUnknown lists why a group leaves a unit failed by itself. A pause does so before version 4
// of the semantics.
const whyNotRestartedUnknown = "retries were killed, switched off or paused, the group was halted, or a member was cancelled that would have to run again"

// WhyNotRestarted returns why groups of a queue left a unit failed at a time, if the policies in force
// then kept them from restarting it; "": they did not.
func WhyNotRestarted(set *policy.Set, queue string, at int64) string {
	switch until := set.PausedUntil(queue); {
	case !set.Enabled():
		return "retries are not enabled"
	case !set.Restarts(queue):
		return "retries are killed"
	case until > at:
		return "retries are paused until " + timeOf(until)
	}
	return ""
}

// whyNotRestarted is WhyNotRestarted as far as the decision itself says.
func whyNotRestarted(d *chain.Decision) string {
	switch {
	case d.Code == policy.KillSwitch, d.GlobalLimit == 0:
		return "retries are killed"
	case d.Group.Noted && !d.Shadow:
		return "retries are not enabled"
	}
	return ""
}

// noRestarts is said of a group policy in place of 0 of 0.
const noRestarts = "its group policy allows no counted restart (maxRestarts is 0 or not set)"

func restartsOf(v *chain.GroupVerdict) string {
	if v.RestartsUsed == 0 && v.MaxRestarts == 0 {
		return "not counted, and " + noRestarts
	}
	return fmt.Sprintf("%d of %d counted restarts", v.RestartsUsed, v.MaxRestarts)
}

func groupRule(name string) string {
	if name == "" {
		return "the default of the group (no rule matched)"
	}
	return "rule " + name + " of the group"
}

func scopeOf(a policy.GroupAction) string {
	switch a {
	case policy.RestartGroup:
		return "the whole group"
	case policy.RestartPart:
		return "its part"
	default:
		return "the unit"
	}
}

// whyFound says why a job is not a member of the group that it names.
func whyFound(r policy.FindingReason) string {
	switch r {
	case policy.InvalidName:
		return "the name is too long"
	case policy.NoPolicyNamed:
		return "no such group is going on, and the job names no group policy for a new one"
	case policy.NoSuchPolicy:
		return "no such group is going on, and the group policy that the job names does not exist"
	case policy.OtherPolicy:
		return "the group has another group policy"
	case policy.NoSuchPart:
		return "the group has no such part"
	case policy.NoSuchReplica:
		return "the part has fewer units"
	case policy.NoSuchIndex:
		return "the unit has fewer members"
	case policy.IndexTaken:
		return "another job has this index"
	case policy.NotOneUnit:
		return "its gang would not be exactly one unit of one group"
	case policy.OverParallelism:
		return "its gang is larger than the parallelism of the part"
	case policy.UnknownFinding:
	}
	return r.String()
}

// describeGroup describes a record of a group in one sentence; "" if it is none.
func describeGroup(r chain.Record) string {
	switch r := r.(type) {
	case *chain.GroupBound:
		by := "without a group policy, as a gang"
		if r.Policy != "" {
			by = fmt.Sprintf("by group policy %s, at most %s", r.Policy, plural.Of(uint64(r.MaxRestarts), "counted restart"))
		}
		return fmt.Sprintf("GroupBound: job %s binds group %s %s", r.JobID, r.Group, by)
	case *chain.GroupFinding:
		return fmt.Sprintf("GroupFinding %s: job %s is not a member of group %s: %s", r.Reason, r.JobID, r.Group, whyFound(r.Reason))
	case *chain.MemberChange:
		s := fmt.Sprintf("%s: job %s, index %d of %s/%d", r.Change, r.JobID, r.Member.Index, r.Member.Part, r.Member.Replica)
		switch r.Change {
		case chain.MemberJoined:
			s += fmt.Sprintf(" of group %s: the group that it names has ended", r.Member.Group)
		case chain.MemberRestart:
			s += fmt.Sprintf(", generation %d, not before %s", r.Member.Generation, timeOf(r.RetryAfter))
		default: // its place says it all
		}
		return s
	case *chain.UnitEnded:
		return fmt.Sprintf("UnitEnded: %s/%d: %s", r.Member.Part, r.Member.Replica, GroupSentence(&r.Verdict, ""))
	case *chain.GroupEnded:
		s := fmt.Sprintf("GroupEnded: group %s %s", r.Group, r.State)
		if r.Reason != policy.NoUnitReason {
			s += fmt.Sprintf(" (%s)", r.Reason)
		}
		if r.Rule != "" {
			s += ", by rule " + r.Rule
		}
		return s
	}
	return ""
}

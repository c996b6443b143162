package group

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/policy"
)

// TestGroups runs the scenarios in testdata: members of one group, and what follows from their status.
func TestGroups(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{t: t}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t, s.d = t, d
			switch d.Cmd {
			case "group":
				// group [any] [success=PART,PART]: a group without members. Each line is a part:
				// NAME [replicas=N] [members=N] [min=N] [after=A,B] [ready=A,B] [parallelism=N] [rule=INDEXES/COUNT]. No line: its size is open.
				return s.group()
			case "join":
				// join: each line is a job with annotations: JOB [group=G] [policy=P] [part=P] [replica=N] [index=N] [gang=ID/SIZE].
				// Prints its place in the group, or why it has none.
				return s.join()
			case "set":
				// set: each line is a member and its status from now on: PART/REPLICA/INDEX FACT…; "-" is none. Prints the group.
				return s.set()
			case "restart":
				// restart UNIT ACTION [keep]: prints what is in scope, and the generations after it, or that it cannot succeed.
				return s.restart()
			case "stored":
				// stored: prints the members that changed since the last time.
				return s.stored()
			}
			d.Fatalf(t, "no verb is called %q", d.Cmd)
			return ""
		})
	})
}

type scenario struct {
	t *testing.T
	d *datadriven.TestData
	g *Group
}

func (s *scenario) number(text string) uint32 {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		s.d.Fatalf(s.t, "%v", err)
	}
	return uint32(n)
}

func (s *scenario) group() string {
	var shape policy.Shape
	places := map[string]uint32{}
	listed := func(names string) (list []uint32) {
		for name := range strings.SplitSeq(names, ",") {
			list = append(list, places[name])
		}
		return list
	}
	for line := range strings.Lines(s.d.Input) {
		words := strings.Fields(line)
		p := policy.ShapePart{Name: words[0], Replicas: 1, Members: 1}
		for _, word := range words[1:] {
			switch key, value, _ := strings.Cut(word, "="); key {
			case "replicas":
				p.Replicas = s.number(value)
			case "members":
				p.Members = s.number(value)
			case "min":
				p.MinMembers = s.number(value)
			case "after":
				p.After = listed(value)
			case "ready":
				p.AfterReady = listed(value)
			case "parallelism":
				p.Parallelism = s.number(value)
			case "rule":
				indexes, count, _ := strings.Cut(value, "/")
				p.SuccessRules = append(p.SuccessRules, policy.SuccessRule{Indexes: policy.ParseIndexes(indexes), Count: s.number(count)})
			}
		}
		if p.MinMembers == 0 {
			p.MinMembers = p.Members
		}
		places[p.Name] = uint32(len(shape.Parts))
		shape.Parts = append(shape.Parts, p)
	}
	for _, arg := range s.d.CmdArgs {
		switch arg.Key {
		case "any":
			shape.Success.Any = true
		case "success":
			for _, name := range arg.Vals {
				shape.Success.Parts = append(shape.Success.Parts, places[name])
			}
		}
	}
	s.g = New(Key{Queue: "q", Set: "s", Name: "g"}, "p", shape)
	return s.show()
}

func (s *scenario) join() string {
	var b strings.Builder
	for line := range strings.Lines(s.d.Input) {
		words := strings.Fields(line)
		sub := &events.Submit{}
		for _, word := range words[1:] {
			key, value, _ := strings.Cut(word, "=")
			if key == "gang" {
				sub.GangID, sub.GangCardinality, _ = strings.Cut(value, "/")
				continue
			}
			*map[string]*string{"group": &sub.Group, "policy": &sub.GroupPolicy, "part": &sub.Part, "replica": &sub.Replica, "index": &sub.Index}[key] = value
		}
		m, ok := MembershipOf("q", "s", sub)
		switch {
		case !ok:
			fmt.Fprintf(&b, "%s: no group\n", words[0])
			continue
		case m.Key != s.g.Key:
			fmt.Fprintf(&b, "%s: in %s, whole gang %t, policy %q\n", words[0], m.Name, m.WholeGang, m.Policy)
			continue
		}
		if why := m.Misfit(s.g, false); why != 0 {
			fmt.Fprintf(&b, "%s: %s\n", words[0], why)
			continue
		}
		part := s.g.Part(m.Part)
		u := part.Unit(m.Replica)
		if u == nil {
			u = &Unit{Replica: m.Replica, GangID: m.GangID, GangSize: m.GangSize, Generation: part.Restarts}
			s.g.Put(part, u)
		}
		if m.FreeIndex {
			m.Index = u.NextFree()
		}
		may := s.g.MayStart(u)
		u.Add(Member{Index: m.Index, Job: words[0]})
		if !may {
			u.Set(u.Member(m.Index), Held)
		}
		fmt.Fprintf(&b, "%s: %s/%d/%d, may start %t\n", words[0], part.Name, u.Replica, m.Index, may)
	}
	return b.String() + s.show()
}

var facts = []struct {
	name string
	fact Status
}{
	{"held", Held},
	{"succeeded", HasSucceeded},
	{"failed", HasFailed},
	{"cancelled", WasCancelled},
	{"stopped", WasStopped},
	{"in-shadow", FailedInShadow},
	{"running", Running},
}

func (s *scenario) member(place string) (*Unit, *Member) {
	at := strings.Split(place, "/")
	u := s.g.Part(at[0]).Unit(s.number(at[1]))
	return u, u.Member(s.number(at[2]))
}

func (s *scenario) set() string {
	for line := range strings.Lines(s.d.Input) {
		words := strings.Fields(line)
		u, m := s.member(words[0])
		status := Status(0)
		for _, f := range facts {
			if slices.Contains(words[1:], f.name) {
				status |= f.fact
			}
		}
		u.Set(m, status)
		if u.State == Active && u.Enough() {
			u.SetState(Succeeded)
		}
	}
	return s.show()
}

func (s *scenario) restart() string {
	at := strings.Split(s.d.CmdArgs[0].Key, "/")
	u := s.g.Part(at[0]).Unit(s.number(at[1]))
	action, _ := policy.ParseGroupAction(s.d.CmdArgs[1].Key)
	keep := len(s.d.CmdArgs) > 2
	if !s.g.CanReach(u, action, keep) {
		return "cannot succeed\n"
	}
	var b strings.Builder
	scope := s.g.Scope(u, action, keep)
	s.g.CountRestart("rule")
	changed := s.g.NewGeneration(u, action, keep)
	fmt.Fprintf(&b, "generation %d, %d by the rule, none by another: %d\n", s.g.Generation, s.g.Restarted("rule"), s.g.Restarted("other"))
	for _, in := range changed {
		fmt.Fprintf(&b, "%s/%d: generation %d, in scope %t\n", in.Part.Name, in.Replica, in.Generation, slices.Contains(scope, in))
	}
	return b.String()
}

func (s *scenario) stored() string {
	var b strings.Builder
	for _, p := range s.g.Parts {
		err := p.Stored(func(u *Unit, m *Member) error {
			fmt.Fprintf(&b, "%s/%d/%d %s\n", p.Name, u.Replica, m.Index, m.Job)
			return nil
		})
		if err != nil {
			s.d.Fatalf(s.t, "%v", err)
		}
	}
	return b.String()
}

// show prints what follows from the members of the group.
func (s *scenario) show() string {
	var b strings.Builder
	for _, p := range s.g.Parts {
		for _, u := range p.Units {
			fmt.Fprintf(&b, "  %s/%d:", p.Name, u.Replica)
			for i := range u.Members {
				m := &u.Members[i]
				fmt.Fprintf(&b, " %d", m.Index)
				for _, f := range facts {
					if m.Status&f.fact != 0 {
						b.WriteString(" " + f.name)
					}
				}
				if m.Status.Started() {
					b.WriteString(" started")
				}
				b.WriteString(",")
			}
			fmt.Fprintf(&b, " %s\n", []string{"active", "succeeded", "failed"}[u.State])
		}
		if next := p.NextToUnhold(); next != nil && s.g.MayUnhold(p) {
			fmt.Fprintf(&b, "  next to release: %s/%d/%d\n", p.Name, next.Replica, next.NextHeld().Index)
		}
	}
	fmt.Fprintf(&b, "%s", []string{"goes on", "awaits members", "exhausted"}[s.g.Prospects()])
	for _, is := range []struct {
		name string
		so   bool
	}{{"succeeded", s.g.HasSucceeded()}, {"all over", s.g.AllOver()}, {"quiet", s.g.Quiet()}, {"idle", s.g.Idle()}, {"all succeeded", s.g.AllSucceeded()}} {
		if is.so {
			b.WriteString(", " + is.name)
		}
	}
	return b.String() + "\n"
}

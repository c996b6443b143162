package api_test

import (
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/test/model"
)

// state is what a generation holds, kept by maps and lists alone.
type state struct {
	number    uint64
	digest    [32]byte
	docs      map[policyfile.ID]doc
	since     map[policyfile.ID]uint64
	ever      map[policyfile.ID]bool // what was ever there
	overrides []override
}

// doc is a resource in the words of the naive model; one of the three is there.
type doc struct {
	policy   *model.Policy
	queue    *model.Queue
	settings *model.Settings
	text     string // as a request holds it: equal texts, equal resources
}

type override struct {
	queue          string
	kill           bool
	until          int64
	author, reason string
}

func emptyState() *state {
	return &state{docs: map[policyfile.ID]doc{}, since: map[policyfile.ID]uint64{}, ever: map[policyfile.ID]bool{}, digest: policyfile.Empty().Digest()}
}

// with is a copy that may be changed.
func (st *state) with() *state {
	return &state{number: st.number, docs: maps.Clone(st.docs), since: st.since, ever: st.ever, overrides: slices.Clone(st.overrides)}
}

// differs lists what is not the same in two states.
func (st *state) differs(before *state) (ids []policyfile.ID) {
	for id, d := range st.docs {
		if was, is := before.docs[id]; !is || was.text != d.text {
			ids = append(ids, id)
		}
	}
	for id := range before.docs {
		if _, is := st.docs[id]; !is {
			ids = append(ids, id)
		}
	}
	return ids
}

// same says that a state holds what another holds.
func (st *state) same(other *state) bool {
	return len(st.differs(other)) == 0 && slices.Equal(st.overrides, other.overrides)
}

// note keeps since when each resource is what it is.
func (st *state) note(before *state) {
	st.since, st.ever = maps.Clone(before.since), maps.Clone(before.ever)
	for _, id := range st.differs(before) {
		delete(st.since, id)
		if _, is := st.docs[id]; is {
			st.since[id], st.ever[id] = st.number, true
		}
	}
}

// naive is a state as the naive model decides by it.
func (st *state) naive(withOverrides bool) model.Policies {
	var p model.Policies
	for _, d := range st.docs {
		switch {
		case d.policy != nil:
			p.Policies = append(p.Policies, *d.policy)
		case d.queue != nil:
			p.Queues = append(p.Queues, *d.queue)
		default:
			p.Settings = new(*d.settings)
		}
	}
	if !withOverrides {
		return p
	}
	for _, b := range st.overrides {
		if b.queue == "" {
			if p.Settings == nil {
				p.Settings = &model.Settings{}
			}
			if b.kill {
				p.Settings.GlobalMaxRetries = new(int)
			}
			p.Settings.PausedUntil = max(p.Settings.PausedUntil, b.until)
			continue
		}
		at := slices.IndexFunc(p.Queues, func(q model.Queue) bool { return q.Name == b.queue })
		if at < 0 {
			at, p.Queues = len(p.Queues), append(p.Queues, model.Queue{Name: b.queue})
		}
		q := &p.Queues[at]
		q.Killed = q.Killed || b.kill
		q.PausedUntil = max(q.PausedUntil, b.until)
	}
	return p
}

func parseNaive(p model.Policies) (*policyfile.Set, error) {
	var files []policyfile.File
	for _, f := range p.YAML(false) {
		files = append(files, policyfile.File{Name: f.Name, Data: f.Data})
	}
	return policyfile.Parse(files)
}

// sets are the sets of a state, parsed from files.
func (st *state) sets() (withOverrides, base *policyfile.Set, err error) {
	if base, err = parseNaive(st.naive(false)); err != nil {
		return nil, nil, err
	}
	withOverrides, err = parseNaive(st.naive(true))
	return withOverrides, base, err
}

// killed says whether active overrides let no retry of a queue through.
func (st *state) killed(queue string) bool {
	return slices.ContainsFunc(st.overrides, func(b override) bool { return b.kill && (b.queue == "" || b.queue == queue) })
}

// paused is until when active overrides let retries of a queue wait.
func (st *state) paused(queue string) int64 {
	until := int64(0)
	for _, b := range st.overrides {
		if b.queue == "" || b.queue == queue {
			until = max(until, b.until)
		}
	}
	return until
}

// whole refuses, among what changed, a deleted policy that is used and a name
// that is not there.
func (st *state) whole(before *state) codes.Code {
	for _, id := range st.differs(before) {
		d, is := st.docs[id]
		switch {
		case !is && id.Kind == policyfile.KindPolicy && len(st.users(id.Name)) > 0:
			return codes.FailedPrecondition
		case is && slices.ContainsFunc(d.names(), func(name string) bool { return !st.hasPolicy(name) }):
			return codes.FailedPrecondition
		}
	}
	return codes.OK
}

func (st *state) hasPolicy(name string) bool {
	_, is := st.docs[policyfile.ID{Kind: policyfile.KindPolicy, Name: name}]
	return is
}

func (st *state) users(name string) (ids []policyfile.ID) {
	for id, d := range st.docs {
		if slices.Contains(d.names(), name) {
			ids = append(ids, id)
		}
	}
	return ids
}

// names are the policies that a resource names.
func (d doc) names() []string {
	switch {
	case d.queue != nil:
		return d.queue.RetryPolicies
	case d.settings != nil && d.settings.DefaultPolicyName != "":
		return []string{d.settings.DefaultPolicyName}
	}
	return nil
}

// docsOf are the resources of a policy set of the naive model.
func docsOf(p model.Policies) (map[policyfile.ID]doc, error) {
	set, err := parseNaive(p)
	if err != nil {
		return nil, err
	}
	docs := map[policyfile.ID]doc{}
	add := func(kind, name string, d doc) error {
		id := policyfile.ID{Kind: kind, Name: name}
		if _, is := set.Body(id); !is { // settings that say nothing
			return nil
		}
		text, err := set.JSON(id)
		d.text = string(text)
		docs[id] = d
		return err
	}
	for i := range p.Policies {
		if err := add(policyfile.KindPolicy, p.Policies[i].Name, doc{policy: &p.Policies[i]}); err != nil {
			return nil, err
		}
	}
	for i := range p.Queues {
		if err := add(policyfile.KindQueue, p.Queues[i].Name, doc{queue: &p.Queues[i]}); err != nil {
			return nil, err
		}
	}
	if p.Settings != nil {
		return docs, add(policyfile.KindSettings, "", doc{settings: p.Settings})
	}
	return docs, nil
}

// detached is a state in which nothing names a policy.
func (st *state) detached(name string) (*state, error) {
	out := st.with()
	p := st.naive(false)
	if p.Settings != nil && p.Settings.DefaultPolicyName == name {
		p.Settings.DefaultPolicyName = ""
	}
	for i := range p.Queues {
		p.Queues[i].RetryPolicies = slices.DeleteFunc(slices.Clone(p.Queues[i].RetryPolicies), func(n string) bool { return n == name })
	}
	p.Policies = slices.DeleteFunc(p.Policies, func(p model.Policy) bool { return p.Name == name })
	var err error
	out.docs, err = docsOf(p)
	return out, err
}

// sorted lists resources so that a seed always picks the same one.
func sorted(docs map[policyfile.ID]doc) []policyfile.ID {
	return slices.SortedFunc(maps.Keys(docs), func(a, b policyfile.ID) int { return strings.Compare(a.String(), b.String()) })
}

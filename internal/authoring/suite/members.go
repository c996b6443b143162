package suite

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/refloat/refloat/internal/group"
	"github.com/refloat/refloat/internal/policy"
)

// place is where a member is in its group.
type place struct {
	part           string
	replica, index uint32
}

// String is the name of a member in tests, and the id of its job.
func (p place) String() string { return fmt.Sprintf("%s/%d/%d", p.part, p.replica, p.index) }

// Members names members of a group as a test writes them: parts, units, members, and ranges of them.
type Members []selection

// selection is one item: PART, PART/REPLICAS, PART/REPLICAS/INDEXES or all.
type selection struct {
	text              string
	part              string
	replicas, indexes span
}

// span is a range of numbers.
type span struct {
	whole       bool // not given
	first, last uint32
}

func (s span) has(n uint32) bool { return s.whole || s.first <= n && n <= s.last }

// everyMember selects all members, unless a part has that name.
const everyMember = "all"

// parseSelection reads one item.
func parseSelection(text string) (selection, bool) {
	fields := strings.Split(text, "/")
	s := selection{text: text, part: fields[0], replicas: span{whole: true}, indexes: span{whole: true}}
	ok := s.part != "" && len(fields) <= 3
	for i, field := range fields[1:] {
		to := &s.replicas
		if i == 1 {
			to = &s.indexes
		}
		first, last, ranged := strings.Cut(field, "-")
		if !ranged {
			last = first
		}
		low, err := strconv.ParseUint(first, 10, 32)
		high, err2 := strconv.ParseUint(last, 10, 32)
		if err != nil || err2 != nil || low > high || high >= math.MaxUint32 {
			ok = false
		}
		*to = span{first: uint32(low), last: uint32(high)}
		ok = ok && i < 2
	}
	return s, ok
}

// one returns the only member that the items name.
func (m Members) one() (place, bool) {
	if len(m) != 1 {
		return place{}, false
	}
	s := m[0]
	ok := !s.replicas.whole && !s.indexes.whole && s.replicas.first == s.replicas.last && s.indexes.first == s.indexes.last
	return place{s.part, s.replicas.first, s.indexes.first}, ok
}

// has reports whether the items name a member.
func (m Members) has(at place) bool {
	return slices.ContainsFunc(m, func(s selection) bool {
		return s.text == everyMember || s.part == at.part && s.replicas.has(at.replica) && s.indexes.has(at.index)
	})
}

// roster is the parts of a group in a test, with the members that they can have.
type roster struct {
	parts []rosterPart
}

type rosterPart struct {
	name              string
	replicas, members uint32 // 0: open
	known             []place
	have              map[place]bool // known, of a part of open size
}

// rosterOf lists the members that a shape declares; none of one of open size.
func rosterOf(shape *policy.Shape) *roster {
	r := &roster{}
	for _, p := range shape.Parts {
		part := rosterPart{name: p.Name, replicas: p.Replicas, members: p.Members}
		for replica := range p.Replicas {
			for index := range p.Members {
				part.known = append(part.known, place{p.Name, replica, index})
			}
		}
		r.parts = append(r.parts, part)
	}
	if shape.Open() {
		r.parts = []rosterPart{{name: policy.MainPart, have: map[place]bool{}}}
	}
	return r
}

// find returns the members that the items name, in order. With adding, those of a group of open size need not be
// known.
func (r *roster) find(items Members, adding bool) ([]place, error) {
	var all []place
	for _, s := range items {
		i := slices.IndexFunc(r.parts, func(p rosterPart) bool { return p.name == s.part })
		if i < 0 {
			if s.text != everyMember {
				return nil, fmt.Errorf("%s: the group policy has no part %s", s.text, shown(s.part))
			}
			for k := range r.parts {
				all = append(all, r.parts[k].known...)
			}
			continue
		}
		found, err := r.parts[i].find(&s, adding)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return r.sorted(all), nil
}

// declares returns an error if the items name what the group cannot have.
func (r *roster) declares(items Members) error {
	for i := range items {
		open := slices.ContainsFunc(r.parts, func(p rosterPart) bool { return p.replicas == 0 && p.name == items[i].part })
		if open {
			continue // of any size
		}
		if _, err := r.find(items[i:i+1], false); err != nil {
			return err
		}
	}
	return nil
}

// maxNamed limits how many members of a group of open size one item names.
const maxNamed = policy.MaxGroupMembers

func (p *rosterPart) find(s *selection, adding bool) ([]place, error) {
	if open := p.replicas == 0; open && adding {
		if s.replicas.whole || s.indexes.whole {
			return nil, fmt.Errorf("%s: the group policy does not say how many there are: name them, such as %s/0/0-7", s.text, p.name)
		}
		if (uint64(s.replicas.last-s.replicas.first)+1)*(uint64(s.indexes.last-s.indexes.first)+1) > maxNamed {
			return nil, fmt.Errorf("%s: more than %d members", s.text, maxNamed)
		}
		for replica := s.replicas.first; replica <= s.replicas.last; replica++ {
			for index := s.indexes.first; index <= s.indexes.last; index++ {
				if m := (place{p.name, replica, index}); !p.have[m] {
					p.have[m], p.known = true, append(p.known, m)
				}
			}
		}
	}
	if !s.replicas.whole && p.replicas > 0 && s.replicas.last >= p.replicas {
		return nil, fmt.Errorf("%s: part %s has replicas 0 to %d", s.text, p.name, p.replicas-1)
	}
	if !s.indexes.whole && p.members > 0 && s.indexes.last >= p.members {
		return nil, fmt.Errorf("%s: units of part %s have members 0 to %d", s.text, p.name, p.members-1)
	}
	var found []place
	for _, m := range p.known {
		if s.replicas.has(m.replica) && s.indexes.has(m.index) {
			found = append(found, m)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: no such member was submitted", s.text)
	}
	return found, nil
}

// sorted returns the members in the order of parts, each once.
func (r *roster) sorted(all []place) []place {
	at := func(m place) int {
		return slices.IndexFunc(r.parts, func(p rosterPart) bool { return p.name == m.part })
	}
	slices.SortStableFunc(all, func(a, b place) int {
		if a.part != b.part {
			return cmp.Compare(at(a), at(b))
		}
		return cmp.Or(cmp.Compare(a.replica, b.replica), cmp.Compare(a.index, b.index))
	})
	return slices.Compact(all)
}

// names writes members as a test would, in the shortest way: equal sets have equal names.
func (r *roster) names(all []place) []string {
	all = r.sorted(slices.Clone(all))
	var names []string
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].part == all[0].part {
			n++
		}
		i := slices.IndexFunc(r.parts, func(p rosterPart) bool { return p.name == all[0].part })
		names = append(names, r.parts[i].names(all[:n])...)
		all = all[n:]
	}
	return names
}

// names writes members of the part, sorted.
func (p *rosterPart) names(all []place) []string {
	if p.replicas > 0 && len(all) == len(p.known) {
		return []string{p.name}
	}
	var names []string
	var whole policy.Indexes
	flush := func() {
		names = append(names, spans(p.name, whole)...)
		whole = nil
	}
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].replica == all[0].replica {
			n++
		}
		if p.members > 0 && n == int(p.members) {
			whole.Add(all[0].replica)
			all = all[n:]
			continue
		}
		flush()
		var indexes policy.Indexes
		for _, m := range all[:n] {
			indexes.Add(m.index)
		}
		names = append(names, spans(fmt.Sprintf("%s/%d", p.name, all[0].replica), indexes)...)
		all = all[n:]
	}
	flush()
	return names
}

// spans writes one item for each interval of a set.
func spans(prefix string, set policy.Indexes) []string {
	if len(set) == 0 {
		return nil
	}
	items := strings.Split(set.String(), ",")
	for i := range items {
		items[i] = prefix + "/" + items[i]
	}
	return items
}

// late takes the run that was told to stop last.
func (m *member) late() (string, error) {
	n := len(m.stopping)
	if n == 0 {
		return "", fmt.Errorf("%s has no run that was told to stop and has not ended", m)
	}
	run := m.stopping[n-1]
	m.stopping = m.stopping[:n-1]
	return run, nil
}

func overBy(s group.Status) string {
	switch {
	case s&group.WasStopped != 0:
		return "stopped; late: true is about the run that was told to stop"
	case s&group.WasCancelled != 0:
		return "cancelled"
	case s&group.HasSucceeded != 0:
		return "succeeded"
	}
	return "failed for good"
}

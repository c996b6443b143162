package projection

import (
	"cmp"
	"container/heap"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/refloat/refloat/internal/group"
	"github.com/refloat/refloat/internal/policy"
)

// A group is kept as one header, one record for each unit, and one for each member, in the
// order in which they are read: so an event of a member rewrites as much in a large group as
// in a small one. Whether it is kept or not, a gang of its name may be in another group, and groups
// may follow it.

const (
	headerRecord = 'a'
	unitRecord   = 'b'
	memberRecord = 'c'
	gangRecord   = 'd'

	followersRecord = 'e'
)

// groupVersion is the first byte of headers and units. A group whose shape has what only version 4 of the semantics
// knows has a header that begins with extendedVersion.
const (
	groupVersion    = 1
	extendedVersion = 2
)

// groupWeight marks the terms of groups among those of jobs: one horizon.
const groupWeight = 0x80

func appendGroupPrefix(b []byte, k group.Key) []byte {
	return appendEscaped(appendEscaped(appendEscaped(append(b, groupKey), k.Queue), k.Set), k.Name)
}

// splitGroupPrefix is the inverse of appendGroupPrefix.
func splitGroupPrefix(key string) (k group.Key, ok bool) {
	rest := key[1:]
	for _, dst := range []*string{&k.Queue, &k.Set, &k.Name} {
		if *dst, rest, ok = cutEscaped(rest); !ok {
			return k, false
		}
	}
	return k, rest == ""
}

// groupOf returns a group's entry in the cache, loading it if necessary.
func (s *State) groupOf(k group.Key) *groupEntry {
	s.key = appendGroupPrefix(s.key[:0], k)
	if ge := s.recentGroups[string(s.key)]; ge != nil {
		return ge
	}
	ge := s.olderGroups[string(s.key)]
	if ge == nil {
		ge = s.loadGroup(string(s.key), k)
	}
	s.recentGroups[ge.key] = ge
	return ge
}

// Group returns the state of a group, nil if it is not known, for tools that show it. It must not be changed.
func (s *State) Group(k group.Key) *group.Group { return s.groupOf(k).g }

// loadGroup reads a group.
func (s *State) loadGroup(key string, k group.Key) *groupEntry {
	ge := &groupEntry{key: key}
	var failed error
	err := s.kv.Scan([]byte(key), after([]byte(key)), func(full, value []byte) bool {
		rest := full[len(key):]
		switch {
		case rest[0] == headerRecord && len(rest) == 1:
			ge.g, failed = decodeGroup(k, value)
		case rest[0] == unitRecord && len(rest) == 9 && ge.g != nil:
			failed = decodeUnit(ge.g, splitMemberRef(rest), value)
		case rest[0] == memberRecord && len(rest) == 13 && ge.g != nil:
			failed = decodeMember(ge.g, splitMemberRef(rest), value)
		case rest[0] == gangRecord && len(rest) == 1 && len(value) > 0:
			ge.gangIn = string(value)
			ge.gangStored = ge.gangIn
		case rest[0] == followersRecord && len(rest) == 1:
			ge.followers, failed = decodeFollowers(value)
		default:
			failed = fmt.Errorf("%w: group %q has an unknown record", ErrCorrupt, k.Name)
		}
		return failed == nil
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		s.fail(fmt.Errorf("read group %q of job set %s: %w", k.Name, k.Set, err))
		ge.g = nil
	}
	if ge.g != nil {
		forgetChanges(ge.g)
		ge.inKV = true
		ge.refused = ge.g.Refused
		ge.stored = groupTerm(ge.g)
		ge.indexed = ge.stored
	}
	return ge
}

func appendMemberRef(b []byte, kind byte, part int, replica uint32) []byte {
	b = binary.BigEndian.AppendUint32(append(b, kind), uint32(part))
	return binary.BigEndian.AppendUint32(b, replica)
}

// splitMemberRef reads the key of a member or unit, without its group.
func splitMemberRef(b []byte) memberRef {
	ref := memberRef{part: int(binary.BigEndian.Uint32(b[1:])), replica: binary.BigEndian.Uint32(b[5:])}
	if len(b) > 9 {
		ref.index = binary.BigEndian.Uint32(b[9:])
	}
	return ref
}

func appendGroup(b []byte, g *group.Group) []byte {
	extended := g.Shape.Extended()
	e := encoder{append(b, groupVersion)}
	if extended {
		e.b[len(e.b)-1] = extendedVersion
	}
	e.string(g.Policy)
	e.uint(uint64(len(g.Shape.Parts)))
	for _, p := range g.Shape.Parts {
		e.string(p.Name)
		e.uint(uint64(p.Replicas))
		e.uint(uint64(p.Members))
		e.uint(uint64(p.MinMembers))
		e.uints(p.After)
		e.uint(uint64(p.Parallelism))
		if extended {
			e.uints(p.AfterReady)
			e.uint(uint64(len(p.SuccessRules)))
			for _, r := range p.SuccessRules {
				e.string(r.Indexes.String())
				e.uint(uint64(r.Count))
			}
		}
	}
	if extended {
		e.bools(g.Shape.Success.Any)
		e.uints(g.Shape.Success.Parts)
	}
	e.b = append(e.b, byte(g.State), byte(g.Reason))
	e.bools(g.Halted, g.Refused, g.Passed)
	e.string(g.Rule)
	e.uint(uint64(g.Generation))
	e.uint(uint64(g.Restarts))
	e.uint(uint64(g.Counted))
	e.uint(uint64(len(g.ByRule)))
	for _, c := range g.ByRule {
		e.string(c.Rule)
		e.uint(uint64(c.Restarts))
	}
	e.int(g.LastEvent)
	for _, p := range g.Parts {
		e.uint(uint64(p.Restarts))
	}
	return e.b
}

func decodeGroup(k group.Key, b []byte) (*group.Group, error) {
	d := decoder{b: b}
	extended := len(b) > 0 && b[0] == extendedVersion
	if extended {
		d.byte()
	} else if err := d.version(groupVersion, "group"); err != nil {
		return nil, err
	}
	policyName := d.string()
	shape := decodeShape(&d, extended)
	if d.bad {
		return nil, d.done("group")
	}
	g := group.New(k, policyName, shape)
	g.State, g.Reason = policy.GroupState(d.byte()), policy.UnitReason(d.byte())
	d.bools(&g.Halted, &g.Refused, &g.Passed)
	g.Rule = d.string()
	g.Generation, g.Restarts, g.Counted = d.uint32(), d.uint32(), d.uint32()
	for range d.count() {
		g.ByRule = append(g.ByRule, group.RuleCount{Rule: d.string(), Restarts: d.uint32()})
	}
	g.LastEvent = d.int()
	for _, p := range g.Parts {
		p.Restarts = d.uint32()
	}
	return g, d.done("group")
}

func decodeShape(d *decoder, extended bool) (shape policy.Shape) {
	parts := d.count()
	others := func() (list []uint32) {
		for range d.count() {
			if list = append(list, d.uint32()); int(list[len(list)-1]) >= parts {
				d.fail()
			}
		}
		return list
	}
	for range parts {
		p := policy.ShapePart{Name: d.string(), Replicas: d.uint32(), Members: d.uint32(), MinMembers: d.uint32()}
		p.After, p.Parallelism = others(), d.uint32()
		if extended {
			p.AfterReady = others()
			for range d.count() {
				p.SuccessRules = append(p.SuccessRules, policy.SuccessRule{Indexes: policy.ParseIndexes(d.string()), Count: d.uint32()})
			}
		}
		shape.Parts = append(shape.Parts, p)
	}
	if extended {
		d.bools(&shape.Success.Any)
		shape.Success.Parts = others()
	}
	return shape
}

func appendUnit(b []byte, u *group.Unit) []byte {
	e := encoder{append(b, groupVersion, byte(u.State))}
	e.string(u.GangID)
	e.uint(uint64(u.GangSize))
	e.int(u.Changed)
	e.uint(uint64(u.Generation))
	e.uint(uint64(u.Restarts))
	e.uint(uint64(u.Retries))
	return e.b
}

func decodeUnit(g *group.Group, ref memberRef, b []byte) error {
	d := decoder{b: b}
	if err := d.version(groupVersion, "unit"); err != nil {
		return err
	}
	u := &group.Unit{Replica: ref.replica, State: group.UnitState(d.byte()), GangID: d.string(), GangSize: d.uint32(), Changed: d.int()}
	u.Generation, u.Restarts, u.Retries = d.uint32(), d.uint32(), d.uint32()
	if ref.part >= len(g.Parts) {
		d.fail()
	}
	if err := d.done("unit"); err != nil {
		return err
	}
	g.Put(g.Parts[ref.part], u)
	return nil
}

// decodeMember adds a member, whose record is its status and the id of its job.
func decodeMember(g *group.Group, ref memberRef, b []byte) error {
	var u *group.Unit
	if ref.part < len(g.Parts) {
		u = g.Parts[ref.part].Unit(ref.replica)
	}
	if u == nil || len(b) < 2 || !group.Status(b[0]).Valid() {
		return fmt.Errorf("%w: a member", ErrCorrupt)
	}
	u.Add(group.Member{Index: ref.index, Status: group.Status(b[0]), Job: string(b[1:])})
	return nil
}

// forgetChanges makes a group that was just read unchanged.
func forgetChanges(g *group.Group) {
	for _, p := range g.Parts {
		_ = p.Stored(func(*group.Unit, *group.Member) error { return nil })
	}
}

// flushGroup writes what changed of a group.
func (s *State) flushGroup(ge *groupEntry, b Batch) error {
	ge.dirty = false
	if ge.wipe {
		ge.wipe, ge.gangStored, ge.followersChanged = false, "", len(ge.followers) > 0
		if err := b.DeleteRange([]byte(ge.key), after([]byte(ge.key))); err != nil {
			return err
		}
	}
	if err := s.flushTerm(b, ge.indexed, &ge.stored, ge.key); err != nil {
		return err
	}
	if err := ge.flushRefused(b); err != nil {
		return err
	}
	if err := ge.flushGang(b); err != nil {
		return err
	}
	if err := ge.flushFollowers(b); err != nil {
		return err
	}
	ge.inKV = ge.g != nil
	if ge.g == nil {
		return nil
	}
	if err := b.Set(append([]byte(ge.key), headerRecord), appendGroup(nil, ge.g)); err != nil {
		return err
	}
	for _, p := range ge.g.Parts {
		err := p.Stored(func(u *group.Unit, m *group.Member) error {
			key := binary.BigEndian.AppendUint32(appendMemberRef([]byte(ge.key), memberRecord, p.Index, u.Replica), m.Index)
			return b.Set(key, append([]byte{byte(m.Status)}, m.Job...))
		})
		if err != nil {
			return err
		}
	}
	for _, u := range ge.changed {
		u.Dirty = false
		if err := b.Set(appendMemberRef([]byte(ge.key), unitRecord, u.Part.Index, u.Replica), appendUnit(nil, u)); err != nil {
			return err
		}
	}
	ge.changed = nil
	return nil
}

func (ge *groupEntry) flushGang(b Batch) error {
	if ge.gangIn == ge.gangStored {
		return nil
	}
	ge.gangStored = ge.gangIn
	key := append([]byte(ge.key), gangRecord)
	if ge.gangIn == "" {
		return b.Delete(key)
	}
	return b.Set(key, []byte(ge.gangIn))
}

// groupTerm returns when a group is looked at again: one horizon after its last event, if
// none of its members is started.
func groupTerm(g *group.Group) term {
	if !g.Idle() || g.Passed {
		return term{}
	}
	return term{weight: groupWeight, base: g.LastEvent}
}

// groupCutoff is the time before which a quiet group must have had its last event to be due.
func (s *State) groupCutoff() int64 { return subtractSaturating(s.Watermark, s.Horizon) }

// A message looks at groups without an event of their own, because their horizon has passed
// or a policy generation has come, until they have this many members in all: what follows
// must fit into one envelope, however many groups there are. The next message goes on.
const membersAMessage = 2_000

// dueGroup is a group whose horizon has passed.
type dueGroup struct {
	since int64
	key   string
}

func (d dueGroup) compare(e dueGroup) int {
	return cmp.Or(cmp.Compare(d.since, e.since), cmp.Compare(d.key, e.key))
}

// takeDueGroups drops the groups whose horizon has passed since they ended, and finds those
// that end because it has.
func (s *State) takeDueGroups() {
	s.msg.due, s.msg.visited = s.msg.due[:0], 0
	cutoff := s.groupCutoff()
	if x := &s.groupTerms; x.inKV < cutoff || len(x.pending) > 0 && x.pending[0].base < cutoff {
		keys, err := x.take(s.kv, cutoff)
		if err != nil {
			s.fail(err)
			return
		}
		for _, key := range keys {
			switch ge := s.dueGroup(key, cutoff); {
			case ge == nil:
			case ge.g.State == policy.GroupActive:
				s.due = append(s.due, dueGroup{ge.indexed.base, key})
			default:
				s.dropGroup(ge)
			}
		}
		slices.SortFunc(s.due, dueGroup.compare)
		s.due = slices.Compact(s.due)
	}
	n := 0
	for ; n < len(s.due) && s.due[n].since < cutoff && s.msg.visited < membersAMessage; n++ {
		if ge := s.dueGroup(s.due[n].key, cutoff); ge != nil && ge.g.State == policy.GroupActive && ge.indexed.base == s.due[n].since {
			ge.g.Passed = true
			s.markDirty(ge)
			s.msg.due = append(s.msg.due, ge)
			s.msg.visited += ge.g.Size()
		}
	}
	s.due = slices.Delete(s.due, 0, n)
}

// dueGroup returns a group if its horizon has passed, else nil.
func (s *State) dueGroup(key string, cutoff int64) *groupEntry {
	k, ok := splitGroupPrefix(key)
	if !ok {
		s.fail(fmt.Errorf("%w: the key of a group", ErrCorrupt))
		return nil
	}
	if ge := s.groupOf(k); ge.g != nil && ge.indexed.weight != 0 && ge.indexed.base < cutoff {
		return ge
	}
	return nil
}

// dropGroup forgets a group with its members.
func (s *State) dropGroup(ge *groupEntry) {
	s.forgetRefused(ge)
	last := ge.g.LastEvent
	s.touchGroup(ge)
	ge.g.LastEvent = last
	for _, part := range ge.g.Parts {
		for _, u := range part.Units {
			s.placeGang(ge.g, u.GangID, "")
			for i := range u.Members {
				s.drop(s.entry(u.Members[i].Job))
			}
		}
	}
	s.forgetFollower(ge.g.Key)
	ge.g, ge.changed, ge.units = nil, nil, nil
	ge.wipe = ge.inKV
	ge.indexed = term{}
}

// reindexGroups updates the index of terms for the groups that the message touched.
func (s *State) reindexGroups() {
	for _, ge := range s.msg.groups {
		ge.touched = false
		t := term{}
		if ge.g != nil {
			t = groupTerm(ge.g)
			for _, u := range ge.units {
				u.Touched, u.Fresh = false, false
			}
		}
		ge.units, ge.waiting = ge.units[:0], nil
		if t == ge.indexed {
			continue
		}
		ge.indexed = t
		if t.weight != 0 {
			heap.Push(&s.groupTerms.pending, pendingTerm{base: t.base, job: ge.key, flush: s.flushes + 1})
		}
	}
	clear(s.msg.groups)
	s.msg.groups = s.msg.groups[:0]
}

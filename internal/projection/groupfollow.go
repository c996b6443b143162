package projection

import (
	"slices"

	"github.com/refloat/refloat/internal/group"
)

// The numbers of the groups that follow one called NAME are kept beside NAME, whether that is
// kept or not: a group that somebody else called NAME#2 is none of them.

// newest returns the newest group of a name that is not forgotten.
func (s *State) newest(k group.Key) *groupEntry {
	ge := s.groupOf(k)
	if n := len(ge.followers); n > 0 {
		return s.groupOf(k.Follower(ge.followers[n-1]))
	}
	return ge
}

// next returns the key of the group that follows the newest one of a name.
func (s *State) next(k group.Key) group.Key {
	ge := s.groupOf(k)
	n := uint32(1)
	if last := len(ge.followers); last > 0 {
		n = ge.followers[last-1]
	} else if ge.g == nil {
		return k
	}
	for {
		n++
		if next := k.Follower(n); s.groupOf(next).g == nil {
			return next
		}
	}
}

// follow records that the next group of a name is there.
func (s *State) follow(k, next group.Key) {
	base, n, ok := next.Follows()
	if !ok || base != k {
		return
	}
	ge := s.groupOf(k)
	if i, there := slices.BinarySearch(ge.followers, n); !there {
		ge.followers, ge.followersChanged = slices.Insert(ge.followers, i, n), true
		s.markDirty(ge)
	}
}

// forgetFollower is the opposite of follow.
func (s *State) forgetFollower(k group.Key) {
	base, n, ok := k.Follows()
	if !ok {
		return
	}
	ge := s.groupOf(base)
	if i, there := slices.BinarySearch(ge.followers, n); there {
		ge.followers, ge.followersChanged = slices.Delete(ge.followers, i, i+1), true
		s.markDirty(ge)
	}
}

func appendFollowers(b []byte, followers []uint32) []byte {
	e := encoder{append(b, groupVersion)}
	e.uint(uint64(len(followers)))
	for _, n := range followers {
		e.uint(uint64(n))
	}
	return e.b
}

func decodeFollowers(b []byte) (followers []uint32, err error) {
	d := decoder{b: b}
	if err := d.version(groupVersion, "list of groups"); err != nil {
		return nil, err
	}
	for range d.count() {
		n := d.uint32()
		if last := len(followers); n < 2 || last > 0 && n <= followers[last-1] {
			d.fail()
		}
		followers = append(followers, n)
	}
	return followers, d.done("list of groups")
}

func (ge *groupEntry) flushFollowers(b Batch) error {
	if !ge.followersChanged {
		return nil
	}
	ge.followersChanged = false
	key := append([]byte(ge.key), followersRecord)
	if len(ge.followers) == 0 {
		return b.Delete(key)
	}
	return b.Set(key, appendFollowers(nil, ge.followers))
}

package group

import (
	"strconv"
	"strings"
)

// Groups of one name follow each other, each after the one before has ended (semantics.md 12.1, from
// version 4 of the semantics on): the first has the name, the others the name with FollowMark and
// their number, from 2.

// FollowMark separates the name of a group that follows others from its number.
const FollowMark = "#"

// Follower returns the key of the n-th group of a name.
func (k Key) Follower(n uint32) Key {
	k.Name += FollowMark + strconv.FormatUint(uint64(n), 10)
	return k
}

// Follows returns which group of which name a key would be, if it is not the first.
func (k Key) Follows() (first Key, n uint32, ok bool) {
	i := strings.LastIndex(k.Name, FollowMark)
	if i < 0 {
		return k, 0, false
	}
	parsed, err := strconv.ParseUint(k.Name[i+len(FollowMark):], 10, 32)
	first, n = Key{Queue: k.Queue, Set: k.Set, Name: k.Name[:i]}, uint32(parsed)
	return first, n, err == nil && n > 1 && first.Follower(n) == k
}

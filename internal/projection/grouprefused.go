package projection

import (
	"fmt"

	"github.com/refloat/refloat/internal/policy"
)

// Where a queue is in shadow, or retries are disabled, a group's members are not released,
// and neither its units nor the group end. What was refused then happens as soon as a policy
// generation has come that lets it: no event of the group need come first.

// recheck is how far the groups of which something was refused were looked at again.
type recheck struct {
	going bool
	done  string // the key of the last one
}

// Recheck has every group of which something was refused looked at again, with the next
// messages. It is called when a policy generation comes into force.
func (s *State) Recheck() { s.recheck = recheck{going: true} }

// refuse records that something of a group was refused.
func (s *State) refuse(ge *groupEntry) {
	if ge.g.Refused {
		return
	}
	ge.g.Refused = true
	s.markDirty(ge)
	s.refused.Insert(ge.key)
}

// forgetRefused is the opposite of refuse.
func (s *State) forgetRefused(ge *groupEntry) {
	if !ge.g.Refused {
		return
	}
	ge.g.Refused = false
	s.markDirty(ge)
	s.refused.Delete(ge.key)
}

// recheckRefused adds the groups to look at again to those of the current message. It is no
// event of theirs.
func (s *State) recheckRefused() {
	if !s.recheck.going {
		return
	}
	var keys []string // more than enough: each has a member
	s.refused.Ascend(s.recheck.done, func(key string) bool {
		if key > s.recheck.done {
			keys = append(keys, key)
		}
		return len(keys) <= membersAMessage
	})
	for _, key := range keys {
		if s.msg.visited >= membersAMessage {
			return
		}
		s.recheck.done = key
		k, ok := splitGroupPrefix(key)
		if !ok {
			s.fail(fmt.Errorf("%w: the key of a group", ErrCorrupt))
			return
		}
		ge := s.groupOf(k)
		if ge.g == nil {
			continue // an error of the KV
		}
		s.msg.visited += ge.g.Size()
		s.forgetRefused(ge)
		if ge.g.State != policy.GroupActive {
			continue
		}
		if ge.g.Passed && ge.g.LastEvent >= s.groupCutoff() && s.msg.features.DueAgain {
			ge.g.Passed = false // the horizon is longer now
			s.markDirty(ge)
		}
		if !ge.touched {
			ge.touched = true
			s.msg.groups = append(s.msg.groups, ge)
		}
		for _, part := range ge.g.Parts {
			for _, u := range part.Units {
				if !u.Touched {
					u.Touched = true
					ge.units = append(ge.units, u)
				}
			}
		}
	}
	s.recheck = recheck{}
}

func (s *State) markDirty(ge *groupEntry) {
	if !ge.dirty {
		ge.dirty = true
		s.dirtyGroups = append(s.dirtyGroups, ge)
	}
}

func (s *State) loadRefused() error {
	b, err := s.kv.Get([]byte{recheckKey})
	if err != nil {
		return fmt.Errorf("read groups: %w", err)
	}
	if b != nil {
		s.recheck = recheck{going: true, done: string(b[1:])}
	}
	s.recheckStored = s.recheck
	err = s.kv.Scan([]byte{refusedKey}, []byte{refusedKey + 1}, func(key, _ []byte) bool {
		s.refused.Insert(string(key[1:]))
		return true
	})
	if err != nil {
		return fmt.Errorf("read groups: %w", err)
	}
	return nil
}

func (ge *groupEntry) flushRefused(b Batch) error {
	refused := ge.g != nil && ge.g.Refused
	if refused == ge.refused {
		return nil
	}
	ge.refused = refused
	key := append([]byte{refusedKey}, ge.key...)
	if refused {
		return b.Set(key, nil)
	}
	return b.Delete(key)
}

func (s *State) flushRecheck(b Batch) error {
	if s.recheck == s.recheckStored {
		return nil
	}
	s.recheckStored = s.recheck
	if s.recheck.going {
		return b.Set([]byte{recheckKey}, append([]byte{1}, s.recheck.done...))
	}
	return b.Delete([]byte{recheckKey})
}

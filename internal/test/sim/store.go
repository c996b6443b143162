package sim

import (
	"bytes"
	"slices"
	"sort"

	"github.com/refloat/refloat/internal/projection"
)

// kv is a sorted list of pairs, and the meta record that belongs to it.
type kv struct {
	pairs []pair
	meta  []byte
}

type pair struct{ key, value []byte }

func (m *kv) clone() kv { return kv{pairs: slices.Clone(m.pairs), meta: m.meta} }

func (m *kv) find(key []byte) int {
	return sort.Search(len(m.pairs), func(i int) bool { return bytes.Compare(m.pairs[i].key, key) >= 0 })
}

func (m *kv) apply(c *commit) {
	for _, op := range c.ops {
		i := m.find(op.key)
		there := i < len(m.pairs) && bytes.Equal(m.pairs[i].key, op.key)
		switch {
		case op.to != nil:
			m.pairs = slices.Delete(m.pairs, i, max(i, m.find(op.to)))
		case op.value == nil:
			if there {
				m.pairs = slices.Delete(m.pairs, i, i+1)
			}
		case there:
			m.pairs[i].value = op.value
		default:
			m.pairs = slices.Insert(m.pairs, i, pair{op.key, op.value})
		}
	}
	m.meta = c.meta
}

// Get returns the value under key, or nil.
func (m *kv) Get(key []byte) ([]byte, error) {
	if i := m.find(key); i < len(m.pairs) && bytes.Equal(m.pairs[i].key, key) {
		return m.pairs[i].value, nil
	}
	return nil, nil
}

// Scan visits the keys in [from, to) in order until visit returns false.
func (m *kv) Scan(from, to []byte, visit func(key, value []byte) bool) error {
	for i := m.find(from); i < len(m.pairs) && bytes.Compare(m.pairs[i].key, to) < 0; i++ {
		if !visit(m.pairs[i].key, m.pairs[i].value) {
			break
		}
	}
	return nil
}

// commit is a batch with its meta record.
type commit struct {
	ops  []op
	meta []byte
}

type op struct{ key, to, value []byte }

func (c *commit) Set(key, value []byte) error {
	c.ops = append(c.ops, op{key: bytes.Clone(key), value: append([]byte{}, value...)})
	return nil
}

func (c *commit) Delete(key []byte) error {
	c.ops = append(c.ops, op{key: bytes.Clone(key)})
	return nil
}

func (c *commit) DeleteRange(from, to []byte) error {
	c.ops = append(c.ops, op{key: bytes.Clone(from), to: bytes.Clone(to)})
	return nil
}

// store is an owner's disk. A crash loses what was not synced, from some commit on.
type store struct {
	kv               // what is visible
	durable kv       // what a crash leaves for sure
	pending []commit // from durable to visible
}

func newStore(from kv) *store { return &store{kv: from.clone(), durable: from.clone()} }

func (s *store) NewBatch() projection.Batch { return &commit{} }

func (s *store) Commit(b projection.Batch, meta []byte) error {
	c := *b.(*commit)
	c.meta = bytes.Clone(meta)
	s.apply(&c)
	s.pending = append(s.pending, c)
	return nil
}

func (s *store) Sync() error {
	for i := range s.pending {
		s.durable.apply(&s.pending[i])
	}
	s.pending = nil
	return nil
}

func (s *store) Meta() ([]byte, error) { return s.meta, nil }

// crash keeps the first n of the commits that were not synced.
func (s *store) crash(n int) {
	for i := range n {
		s.durable.apply(&s.pending[i])
	}
	s.kv, s.pending = s.durable.clone(), nil
}

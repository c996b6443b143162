package projection

import (
	"bytes"

	"github.com/tidwall/btree"
)

// Memory keeps a partition's records in memory: for replays and tests.
type Memory struct {
	tree *btree.BTreeG[pair]
	meta []byte
	ops  []memoryOp // the memory of those that were committed last
}

type pair struct{ key, value []byte }

// NewMemory returns an empty store.
func NewMemory() *Memory {
	less := func(a, b pair) bool { return bytes.Compare(a.key, b.key) < 0 }
	return &Memory{tree: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})}
}

// Get returns the value under key, or nil.
func (m *Memory) Get(key []byte) ([]byte, error) {
	p, ok := m.tree.Get(pair{key: key})
	if !ok {
		return nil, nil
	}
	return p.value, nil
}

// Scan visits the keys in [from, to) in order until visit returns false.
func (m *Memory) Scan(from, to []byte, visit func(key, value []byte) bool) error {
	m.tree.Ascend(pair{key: from}, func(p pair) bool {
		return bytes.Compare(p.key, to) < 0 && visit(p.key, p.value)
	})
	return nil
}

// NewBatch begins a batch.
func (m *Memory) NewBatch() Batch {
	b := &memoryBatch{ops: m.ops}
	m.ops = nil
	return b
}

// Commit applies a batch of this store, with its meta record.
func (m *Memory) Commit(b Batch, meta []byte) error {
	ops := b.(*memoryBatch).ops
	for _, op := range ops {
		switch {
		case op.to != nil:
			var keys [][]byte
			_ = m.Scan(op.key, op.to, func(key, _ []byte) bool {
				keys = append(keys, key)
				return true
			})
			for _, key := range keys {
				m.tree.Delete(pair{key: key})
			}
		case op.value == nil:
			m.tree.Delete(pair{key: op.key})
		default:
			m.tree.Set(pair{key: op.key, value: op.value})
		}
	}
	clear(ops)
	m.meta, m.ops = meta, ops[:0]
	return nil
}

// Sync does nothing.
func (m *Memory) Sync() error { return nil }

// Meta returns the meta record that was committed last, or nil.
func (m *Memory) Meta() ([]byte, error) { return m.meta, nil }

// Close does nothing.
func (m *Memory) Close() error { return nil }

type memoryBatch struct{ ops []memoryOp }

type memoryOp struct{ key, to, value []byte }

func (b *memoryBatch) Set(key, value []byte) error {
	both := append(append(make([]byte, 0, len(key)+len(value)), key...), value...)
	b.ops = append(b.ops, memoryOp{key: both[:len(key):len(key)], value: both[len(key):]})
	return nil
}

func (b *memoryBatch) Delete(key []byte) error {
	b.ops = append(b.ops, memoryOp{key: bytes.Clone(key)})
	return nil
}

func (b *memoryBatch) DeleteRange(from, to []byte) error {
	b.ops = append(b.ops, memoryOp{key: bytes.Clone(from), to: bytes.Clone(to)})
	return nil
}

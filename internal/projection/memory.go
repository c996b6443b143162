package projection

import (
	"bytes"

	"github.com/tidwall/btree"
)

// Memory keeps a partition's records in memory: for replays and tests.
type Memory struct {
	tree *btree.BTreeG[pair]
	meta []byte
}

type pair struct{ key, value []byte }

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{tree: btree.NewBTreeG(func(a, b pair) bool { return bytes.Compare(a.key, b.key) < 0 })}
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
func (m *Memory) NewBatch() Batch { return &memoryBatch{} }

// Commit applies a batch of this store, with its meta record.
func (m *Memory) Commit(b Batch, meta []byte) error {
	for _, op := range b.(*memoryBatch).ops {
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
	m.meta = meta
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
	if value == nil {
		value = []byte{}
	}
	b.ops = append(b.ops, memoryOp{key: bytes.Clone(key), value: value})
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

package scheduling

import (
	"cmp"
	"slices"
)

// index keeps all nodes in the order in which they are preferred: least free first, of the first
// resource, then of the second, and so on, then by name. Nodes are in blocks, and each block knows
// the most that any of its nodes has of each resource, so that most blocks can be skipped.
type index struct {
	c         *cycle
	blocks    []*block
	spare     []*block
	touched   []int32
	isTouched []bool
}

type block struct {
	nodes []int32
	// most is the maximum over all nodes of what is free, and then of what is available at each level.
	most  []int64
	stale bool
}

const blockSize = 64

// fewNodes is up to how many nodes a look at each of them is cheaper than keeping them in order. (Random instances have fewer and more.)
const fewNodes = 16

// build indexes all nodes anew.
func (x *index) build() {
	c := x.c
	x.touched, x.isTouched = nil, make([]bool, len(c.nodes))
	c.amounts.indexed = slices.Clone(c.amounts.free)
	all := make([]int32, len(c.nodes))
	for i := range all {
		all[i] = int32(i)
	}
	slices.SortFunc(all, func(a, b int32) int { return c.compareNodes(a, b) })
	for chunk := range slices.Chunk(all, blockSize/2) {
		b := x.newBlock()
		b.nodes = append(b.nodes, chunk...)
		x.blocks = append(x.blocks, b)
	}
}

func (x *index) newBlock() *block {
	if last := len(x.spare) - 1; last >= 0 {
		b := x.spare[last]
		x.spare = x.spare[:last]
		b.nodes, b.stale = b.nodes[:0], true
		return b
	}
	return &block{nodes: make([]int32, 0, blockSize), most: make([]int64, (1+x.c.levels)*x.c.resources), stale: true}
}

// compareNodes is the order of preference, as far as the index knows what is free.
func (c *cycle) compareNodes(a, b int32) int {
	if order := slices.Compare(c.of(c.amounts.indexed, a), c.of(c.amounts.indexed, b)); order != 0 {
		return order
	}
	return cmp.Compare(a, b)
}

// touch says that what a node has changed.
func (x *index) touch(n int32) {
	if !x.isTouched[n] {
		x.isTouched[n] = true
		x.touched = append(x.touched, n)
	}
}

// settle puts the nodes that changed where they belong.
func (x *index) settle() {
	c := x.c
	for _, n := range x.touched {
		x.isTouched[n] = false
		free, indexed := c.of(c.amounts.free, n), c.of(c.amounts.indexed, n)
		at := x.find(n)
		b := x.blocks[at]
		b.stale = true
		if slices.Equal(free, indexed) {
			continue
		}
		i, _ := slices.BinarySearchFunc(b.nodes, n, c.compareNodes)
		b.nodes = slices.Delete(b.nodes, i, i+1)
		if len(b.nodes) == 0 && len(x.blocks) > 1 {
			x.blocks = slices.Delete(x.blocks, at, at+1)
			x.spare = append(x.spare, b)
		}
		copy(indexed, free)
		x.insert(n)
	}
	x.touched = x.touched[:0]
}

// find is the block in which a node is, or belongs.
func (x *index) find(n int32) int {
	after, _ := slices.BinarySearchFunc(x.blocks, n, func(b *block, n int32) int {
		if len(b.nodes) > 0 && x.c.compareNodes(b.nodes[0], n) > 0 {
			return 1
		}
		return -1
	})
	return max(0, after-1)
}

func (x *index) insert(n int32) {
	at := x.find(n)
	b := x.blocks[at]
	if len(b.nodes) == blockSize {
		upper := x.newBlock()
		upper.nodes = append(upper.nodes, b.nodes[blockSize/2:]...)
		b.nodes, b.stale = b.nodes[:blockSize/2], true
		x.blocks = slices.Insert(x.blocks, at+1, upper)
		if x.c.compareNodes(upper.nodes[0], n) <= 0 {
			b = upper
		}
	}
	i, _ := slices.BinarySearchFunc(b.nodes, n, x.c.compareNodes)
	b.nodes, b.stale = slices.Insert(b.nodes, i, n), true
}

// mostOf is the most that nodes of a block have: free, or available at a level.
func (x *index) mostOf(b *block, level int32) []int64 {
	c := x.c
	if b.stale {
		b.stale = false
		for i := range b.most {
			b.most[i] = -1
		}
		for _, n := range b.nodes {
			raise(b.most[:c.resources], c.of(c.amounts.free, n))
			raise(b.most[c.resources:], c.allAvailable(n))
		}
	}
	return b.most[int(level+1)*c.resources : int(level+2)*c.resources]
}

func raise(most, amounts []int64) {
	for r, amount := range amounts {
		most[r] = max(most[r], amount)
	}
}

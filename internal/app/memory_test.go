package app

import (
	"strings"
	"testing"
)

func TestParseMemory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want int64
		err  string
	}{
		{text: "", want: 0},
		{text: "512MiB", want: 512 << 20},
		{text: "2GiB", want: 2 << 30},
		{text: "1 GB", want: 1e9},
		{text: "134217728", want: 128 << 20},
		{text: "64MiB", err: "128MiB or more"},
		{text: "512", err: "128MiB or more"},
		{text: "-1GiB", err: "want a size"},
		{text: "lots", err: "want a size"},
		{text: "9000PiB", err: "want a size"},
	} {
		got, err := ParseMemory(c.text)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("ParseMemory(%q) = %d, %v, want %d, %q", c.text, got, err, c.want, c.err)
		}
	}
}

// TestMemoryIsShared: the partitions of a process divide its memory, so that it does not grow with their number.
func TestMemoryIsShared(t *testing.T) {
	t.Parallel()
	const total = 1 << 30
	for _, partitions := range []int{1, 3, 64} {
		m := newMemory(total, partitions)
		m.states.Store(int64(partitions))
		jobs, rows := partitions*jobGenerations*m.cacheJobs()*jobBytes, partitions*m.rows*jobBytes
		sum := int(m.blocks.MaxSize()) + jobs + rows
		if sum > total/2 || sum < total/4 {
			t.Errorf("caches for %d partitions take %d of %d bytes", partitions, sum, total)
		}
		if tables := partitions * 2 * int(m.memTable); tables > int(m.blocks.MaxSize())*3/4 {
			t.Errorf("memtables of %d partitions take %d of %d bytes of the blocks' cache", partitions, tables, m.blocks.MaxSize())
		}
		if all := int64(sum) + m.pages; all > total*6/10 || m.pages < total/20 {
			t.Errorf("with the pages of SQLite, caches for %d partitions take %d of %d bytes", partitions, all, total)
		}
		m.blocks.Unref()
	}
	little := newMemory(MinMemory, 1)
	defer little.blocks.Unref()
	if little.pages > MinMemory/8 {
		t.Errorf("of %d bytes, %d are for pages of SQLite", MinMemory, little.pages)
	}
	few := newMemory(total, 64)
	defer few.blocks.Unref()
	few.states.Store(1)
	one := few.cacheJobs()
	few.states.Store(16)
	if got := few.cacheJobs(); got < one/17 || got > one/15 {
		t.Errorf("with 16 open states a cache has %d jobs, with one %d", got, one)
	}
}

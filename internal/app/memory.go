package app

import (
	"fmt"
	"math"
	"runtime/debug"
	"sync/atomic"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/cockroachdb/pebble/v2"
	"github.com/dustin/go-humanize"
)

const (
	// MinMemory is the least that a process can be given, in bytes: buffers of its logs and compiled policies take
	// tens of megabytes, whatever the caches are.
	MinMemory = 128 << 20
	// defaultMemory applies where neither the operator nor a container sets a limit.
	defaultMemory = 512 << 20
	maxMemory     = 1 << 50 // more is no limit
)

// MemoryUsage describes the flag of Config.Memory.
const MemoryUsage = "how much memory to use, such as 2GiB; caches follow it (default: nine tenths of the container's limit, else 512MiB)"

// ParseMemory parses the size of Config.Memory; "" is the default.
func ParseMemory(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := humanize.ParseBytes(s)
	switch {
	case err != nil || n > maxMemory:
		return 0, fmt.Errorf("%q: want a size such as 512MiB or 2GiB", s)
	case n < MinMemory:
		return 0, fmt.Errorf("%s is too little: give 128MiB or more", s)
	}
	return int64(n), nil
}

// memoryOf returns the bytes to use: those that were asked for, else by the limit of the container.
func memoryOf(asked int64) int64 {
	if asked > 0 {
		return asked
	}
	limit, err := memlimit.FromCgroup()
	if err != nil || limit > maxMemory {
		return defaultMemory
	}
	return max(int64(limit/10*9), MinMemory)
}

// memory divides what the process may use among what would otherwise grow with the input. The rest is for buffers,
// policies and the garbage collector, which works more where less is left.
type memory struct {
	blocks   *pebble.Cache // of all states, their memtables included
	memTable uint64        // size of one
	jobs     int64         // in the caches of all states
	rows     int           // that the ingester keeps, per partition
	pages    int64         // of a job database in SQLite, whose memory is not of the Go heap
	states   atomic.Int64  // that are open
}

const (
	jobBytes = 1 << 10 // of a cached job with a run, or of a job's rows, about
	// jobGenerations is the number of generations in the cache of a state.
	jobGenerations = 2
)

// limitHeap tells the garbage collector how much memory to use, unless the environment does (GOMEMLIMIT).
func limitHeap(total int64) {
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(total)
	}
}

// newMemory divides memory among the parts of a process.
func newMemory(total int64, partitions int) *memory {
	blocks := total / 5
	return &memory{
		blocks:   pebble.NewCache(blocks),
		memTable: uint64(min(max(blocks/4/int64(partitions), 1<<20), 16<<20)),
		jobs:     total / 12 / jobBytes,
		rows:     int(max(total/12/jobBytes/int64(partitions), 1000)),
		pages:    min(total/8, 64<<20),
	}
}

// cacheJobs is the number of jobs in one generation of the cache of a state.
func (m *memory) cacheJobs() int {
	return int(max(m.jobs/jobGenerations/max(m.states.Load(), 1), 256))
}

package jobdbtest

import (
	"fmt"
	"reflect"

	"github.com/refloat/refloat/internal/jobdb"
)

// sample fills every field with a value of its own, so that a column that is
// missing or swapped shows.
func sample[T any](seed int) *T {
	row := new(T)
	n := seed * 100
	fill(reflect.ValueOf(row).Elem(), &n)
	return row
}

func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Struct:
		for _, f := range v.Fields() {
			fill(f, n)
		}
	case reflect.String:
		v.SetString(fmt.Sprintf("text %d", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint8:
		v.SetUint(uint64(1 + *n%5))
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetUint(uint64(*n+i) % 256)
		}
	case reflect.Slice:
		fillSlice(v, n)
	default:
		panic(fmt.Sprintf("jobdbtest: no sample for %v", v.Type()))
	}
}

func fillSlice(v reflect.Value, n *int) {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		v.SetBytes([]byte(fmt.Sprintf("bytes %d", *n)))
		return
	}
	for range 2 {
		e := reflect.New(v.Type().Elem()).Elem()
		fill(e, n)
		v.Set(reflect.Append(v, e))
	}
}

// everything is one row of each kind in one partition.
func everything(partition, seed int) *jobdb.Changes {
	c := &jobdb.Changes{
		Jobs:         []*jobdb.Job{sample[jobdb.Job](seed)},
		Runs:         []*jobdb.Run{sample[jobdb.Run](seed)},
		Decisions:    []*jobdb.Decision{sample[jobdb.Decision](seed)},
		NotDecided:   []*jobdb.NotDecided{sample[jobdb.NotDecided](seed)},
		Parked:       []*jobdb.Parked{sample[jobdb.Parked](seed)},
		Ready:        []*jobdb.Ready{sample[jobdb.Ready](seed)},
		Activations:  []*jobdb.Activation{sample[jobdb.Activation](seed)},
		Releases:     []*jobdb.Release{sample[jobdb.Release](seed)},
		Groups:       []*jobdb.Group{sample[jobdb.Group](seed)},
		Units:        []*jobdb.Unit{sample[jobdb.Unit](seed)},
		GroupRecords: []*jobdb.GroupRecord{sample[jobdb.GroupRecord](seed)},
	}
	c.Jobs[0].Partition, c.Runs[0].Partition, c.Decisions[0].Partition = partition, partition, partition
	c.NotDecided[0].Partition, c.Parked[0].Partition = partition, partition
	c.Ready[0].Partition, c.Activations[0].Partition, c.Releases[0].Partition = partition, partition, partition
	c.Groups[0].Partition, c.Units[0].Partition, c.GroupRecords[0].Partition = partition, partition, partition
	return c
}

func job(partition int, id string) *jobdb.Job {
	return &jobdb.Job{Partition: partition, JobID: id, Queue: "q", JobSet: "s", Known: true, State: jobdb.JobQueued}
}

func run(partition int, job, id string, index uint32) *jobdb.Run {
	return &jobdb.Run{Partition: partition, JobID: job, RunID: id, Index: index, State: jobdb.RunLeased}
}

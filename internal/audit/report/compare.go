package report

import (
	"encoding/json"
	"fmt"
)

// Until returns the envelope up to which each partition was verified, for Options.
func (r *Report) Until() map[int]uint64 {
	until := map[int]uint64{}
	for i := range r.Partitions {
		if p := &r.Partitions[i]; p.End.Envelope > 0 {
			until[p.Partition] = p.End.Envelope
		}
	}
	return until
}

// Compare lists in which partitions logs are not those that a report is about. now is a
// report on these logs, up to the ends of the first one (Until).
func Compare(then, now *Report) (different []string) {
	parts := map[int]*Partition{}
	for i := range now.Partitions {
		parts[now.Partitions[i].Partition] = &now.Partitions[i]
	}
	for i := range then.Partitions {
		a := &then.Partitions[i]
		b := parts[a.Partition]
		switch {
		case a.End.Envelope == 0:
		case b == nil:
			different = append(different, fmt.Sprintf("partition %d: the logs do not have it", a.Partition))
		case b.Difference != nil:
			different = append(different, fmt.Sprintf("partition %d: %s: %s", a.Partition, b.Difference.Kind, b.Difference.Text))
		default:
			for _, d := range a.differs(b) {
				different = append(different, fmt.Sprintf("partition %d: %s", a.Partition, d))
			}
		}
	}
	return different
}

// differs lists what is different of what both verified. Where the beginning differs,
// because one of them began at a checkpoint, only what both have can be compared.
func (p *Partition) differs(b *Partition) (all []string) {
	check := func(what string, then, now any) {
		x, _ := json.Marshal(then)
		y, _ := json.Marshal(now)
		if string(x) != string(y) {
			all = append(all, fmt.Sprintf("%s: the report says %.200s, the logs have %.200s", what, x, y))
		}
	}
	check("end", p.End, b.End)
	check("running hash", p.RunningHash, b.RunningHash)
	check("last decision", p.Decided, b.Decided)
	check("generation", p.Generation, b.Generation)
	if p.Begin == b.Begin && p.Unknown == nil && b.Unknown == nil {
		check("messages", p.Messages, b.Messages)
		check("records", p.Records, b.Records)
		check("generations", p.Generations, b.Generations)
		check("semantics", p.Semantics, b.Semantics)
	}
	return all
}

package query

import (
	"context"
	"fmt"
	"slices"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
)

// Partition is what is known of a partition here: by the process that decides it, if that is this one, and by the job
// database.
type Partition struct {
	Partition int  `json:"partition"`
	Here      bool `json:"here"` // this process decides it
	// Owner is the name of this process, or the id that the owner of the partition has in the decision log, as far as the
	// job database has read that; "": unknown.
	Owner string `json:"owner,omitempty"`
	// Refused is why this process does not decide it until an operator acts, although it would be the one to; nobody
	// decides it then.
	Refused    string   `json:"refused,omitempty"`
	Epoch      uint64   `json:"epoch,omitempty"`      // of the last ownership claim in the job database
	Generation uint64   `json:"generation,omitempty"` // of the policies in force; 0: unknown here, as the next three
	Since      string   `json:"since,omitempty"`      // when they came into force
	LagSeconds *float64 `json:"lagSeconds,omitempty"`
	Behind     *float64 `json:"behind,omitempty"`   // messages that are not decided yet
	Envelope   uint64   `json:"envelope,omitempty"` // the last one in the job database
	Events     string   `json:"events,omitempty"`   // position of the last message in the job database
}

// ListPartitions lists what is known of each partition, by number. Source.Partitions and the job database each know some.
func (s *Source) ListPartitions(ctx context.Context) (all []Partition, err error) {
	if s.Partitions != nil {
		if all, err = s.Partitions(ctx); err != nil {
			return nil, err
		}
	}
	if s.Jobs == nil {
		return all, nil
	}
	err = s.Jobs(ctx, func(q jobdb.Queries) error {
		positions, err := q.Positions()
		for _, p := range positions {
			i := slices.IndexFunc(all, func(one Partition) bool { return one.Partition == p.Partition })
			if i < 0 {
				i, all = len(all), append(all, Partition{Partition: p.Partition})
			}
			at := &all[i]
			at.Envelope, at.Epoch, at.Events = p.Positions.Chain.Seq, p.Positions.Chain.Epoch, p.Positions.Chain.InTo.String()
			if at.Owner == "" && at.Refused == "" && p.Positions.Chain.Owner != (chain.OwnerID{}) {
				at.Owner = fmt.Sprintf("%x", p.Positions.Chain.Owner)
			}
		}
		return err
	})
	slices.SortFunc(all, func(a, b Partition) int { return a.Partition - b.Partition })
	return all, err
}

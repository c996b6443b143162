package query

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
)

// atOnce is how many decisions of a partition a Watch reads in one go.
const atOnce = 1000

// Watch is a position among the decisions of a job database.
type Watch struct {
	Want   func(*jobdb.Decision) bool
	Behind uint64 // decisions of a partition that it may lag behind; 0: any number
	More   bool   // the last News did not reach the end

	seen map[int]uint64 // by partition: the last decision that was read
}

// ErrBehind reports that a Watch has fallen too far behind.
var ErrBehind = errors.New("too far behind the decisions: list what was missed, then watch again")

var errEnough = errors.New("enough")

// Streams reports whether decisions can be selected as they come: by fewer criteria than those of a list.
func (l *List) Streams() bool {
	rest := l.Criteria
	rest.Queue, rest.JobSet, rest.JobID, rest.Policy, rest.Rule = "", "", "", "", ""
	return rest.Empty() && l.Sort == ""
}

// Watch returns the position before all decisions that a list selects which Streams. Errors: *Invalid.
func (l *List) Watch() (*Watch, error) {
	sel, err := l.Select(Decisions)
	of := &sel.Criteria
	return &Watch{seen: map[int]uint64{}, Want: func(d *jobdb.Decision) bool {
		return (of.Queue == "" || d.Queue == of.Queue) && (of.JobSet == "" || d.JobSet == of.JobSet) && (of.JobID == "" || d.JobID == of.JobID) &&
			(of.Policy == "" || d.Policy == of.Policy) && (of.Rule == "" || d.Rule == of.Rule) && (len(of.Codes) == 0 || slices.Contains(of.Codes, d.Code))
	}}, err
}

// ToEnd moves the position to the end.
func (w *Watch) ToEnd(ctx context.Context, from *Source) error {
	return w.each(ctx, from, func(_ jobdb.Queries, partition int, newest uint64) error {
		w.seen[partition] = newest
		return nil
	})
}

// each visits the partitions that have decisions after the position.
func (w *Watch) each(ctx context.Context, from *Source, visit func(q jobdb.Queries, partition int, newest uint64) error) error {
	return from.Jobs(ctx, func(q jobdb.Queries) error {
		positions, err := q.Positions()
		for _, p := range positions {
			newest := uint64(0)
			last := jobdb.RecordFilter{Partition: &p.Partition, From: w.seen[p.Partition] + 1, Last: 1}
			if err == nil {
				err = q.Decisions(last, func(d *jobdb.Decision) error { newest = d.Number; return nil })
			}
			if err == nil && newest > 0 {
				err = visit(q, p.Partition, newest)
			}
		}
		return err
	})
}

// News returns decisions after the position, and moves it behind them. Errors: ErrBehind.
func (w *Watch) News(ctx context.Context, from *Source) (news []jobdb.Decision, err error) {
	w.More = false
	err = w.each(ctx, from, func(q jobdb.Queries, partition int, newest uint64) error {
		seen, n := w.seen[partition], 0
		if w.Behind > 0 && newest-seen > w.Behind {
			return ErrBehind
		}
		err := q.Decisions(jobdb.RecordFilter{Partition: &partition, From: seen + 1, To: seen + atOnce}, func(d *jobdb.Decision) error {
			if n++; n > atOnce {
				return errEnough
			}
			w.seen[partition] = d.Number
			if w.Want(d) {
				news = append(news, *d)
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
		if n == 0 {
			w.seen[partition] += atOnce // pruned
		}
		w.More = w.More || w.seen[partition] < newest
		return nil
	})
	return news, err
}

// Existing visits the last decisions of a list (all of them if last is negative), and returns whether one was among them.
func Existing(ctx context.Context, from Answers, l *List, last int, visit func(*audit.Decision) error) (among func(*audit.Decision) bool, err error) {
	if last >= 0 {
		type name struct {
			partition int
			number    uint64
		}
		visited := map[name]bool{}
		if last > 0 {
			err = LastDecisions(ctx, from, l, last, func(d *audit.Decision) error {
				visited[name{d.Partition, d.Number}] = true
				return visit(d)
			})
		}
		return func(d *audit.Decision) bool { return visited[name{d.Partition, d.Number}] }, err
	}
	newest := map[int]uint64{}
	all := *l
	all.Limit, all.Continue = 0, ""
	_, err = from.ListDecisions(ctx, &all, func(d *audit.Decision) error {
		newest[d.Partition] = max(newest[d.Partition], d.Number)
		return visit(d)
	})
	return func(d *audit.Decision) bool { return d.Number <= newest[d.Partition] }, err
}

// WatchDecisions visits the last decisions of a list that Streams (all of them if last is negative), and then those that
// come, until the context ends. shown is called when those that exist, and whenever some that came, have been visited.
func (s *Source) WatchDecisions(ctx context.Context, l *List, last int, every time.Duration, visit func(*audit.Decision) error, shown func() error) error {
	w, err := l.Watch()
	if err == nil {
		err = w.ToEnd(ctx, s)
	}
	if err != nil {
		return err
	}
	among, err := Existing(ctx, s, l, last, visit)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if err := shown(); err != nil {
			return err
		}
		if !w.More {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		news, err := w.News(ctx, s)
		if err != nil {
			return err
		}
		slices.SortStableFunc(news, func(a, b jobdb.Decision) int { return cmp.Compare(a.Time, b.Time) })
		for i := range news {
			d := DecisionOf(&news[i])
			if among(&d) {
				continue
			}
			if err := visit(&d); err != nil {
				return err
			}
		}
	}
}

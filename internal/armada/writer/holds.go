package writer

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/schedulerdb"
	"github.com/refloat/refloat/internal/schedulerdb/pgstore"
)

// loadHolds loads the held members that actions name, by id, by job set or all of them. It
// returns the ids with those that were added to jobs.
func (w *writing) loadHolds(ctx context.Context, jobs map[string]*jobView, ids []string, actions []action) ([]string, error) {
	if !w.hasHeld && !w.voids(actions) {
		return ids, nil
	}
	all := false
	var queues, sets []string
	for _, a := range actions {
		switch a := a.(type) {
		case voidHolds:
			all = true
		case apply:
			switch o := a.Op.(type) {
			case *schedulerdb.RequestSetCancel:
				queues, sets = append(queues, o.Queue), append(sets, o.JobSet)
			case *schedulerdb.SetSetPriority:
				queues, sets = append(queues, o.Queue), append(sets, o.JobSet)
			}
		}
	}
	const where = `partition = $1 AND ($2 OR job_id = ANY($3) OR (queue, job_set) IN (SELECT * FROM unnest($4::text[], $5::text[])))`
	found, err := w.holds(ctx, where, w.cfg.Partition, all, ids, queues, sets)
	if err != nil {
		return nil, err
	}
	for id, op := range found { //house:sorted the order of ids does not matter
		if jobs[id] == nil {
			jobs[id] = &jobView{id: id}
			ids = append(ids, id)
		}
		jobs[id].held = op
	}
	if !all {
		return ids, nil
	}
	rows, err := w.conn.Query(ctx, "SELECT job_id FROM refloat_waits WHERE partition = $1 AND retry_after = $2", w.cfg.Partition, untilUnheld)
	if err != nil {
		return nil, w.failed("find held members", err)
	}
	waiting, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, id := range waiting {
		if jobs[id] == nil {
			jobs[id] = &jobView{id: id}
			ids = append(ids, id)
		}
	}
	return ids, w.failed("find held members", err)
}

// voids reports whether restarted members that are held may have to be released.
func (w *writing) voids(actions []action) bool {
	if w.due == never {
		return false
	}
	for _, a := range actions {
		if _, ok := a.(voidHolds); ok {
			return true
		}
	}
	return false
}

// holds loads held members and locks them, because SubmitHeld writes those of all partitions.
// Armada's lock comes after these.
func (w *writing) holds(ctx context.Context, where string, args ...any) (map[string]*schedulerdb.InsertJob, error) {
	rows, err := w.conn.Query(ctx, "SELECT job_id, submitted FROM refloat_held WHERE "+where+" ORDER BY partition, job_id FOR UPDATE", args...)
	if err != nil {
		return nil, w.failed("load held members", err)
	}
	found := map[string]*schedulerdb.InsertJob{}
	var id string
	var stored []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &stored}, func() error {
		op := &schedulerdb.InsertJob{}
		found[id] = op
		if err := json.Unmarshal(stored, op); err != nil {
			return fmt.Errorf("row of held member %s: %w", id, err)
		}
		stored = nil
		return nil
	})
	return found, w.failed("load held members", err)
}

// writeHolds writes the held members that have changed.
func (w *writing) writeHolds(ctx context.Context, jobs map[string]*jobView) error {
	var gone []string
	batch := &pgx.Batch{}
	for _, j := range jobs { //house:sorted each is a row of its own
		switch {
		case !j.heldChanged:
		case j.held == nil:
			gone = append(gone, j.id)
		default:
			stored, err := json.Marshal(j.held)
			if err != nil {
				return fmt.Errorf("keep held member %s: %w", j.id, err)
			}
			const upsert = `INSERT INTO refloat_held VALUES ($1, $2, $3, $4, $5) ON CONFLICT (partition, job_id) DO UPDATE SET submitted = $5`
			batch.Queue(upsert, w.cfg.Partition, j.id, j.held.Queue, j.held.JobSet, stored)
			w.hasHeld = true
		}
	}
	if len(gone) > 0 {
		batch.Queue(`DELETE FROM refloat_held WHERE partition = $1 AND job_id = ANY($2)`, w.cfg.Partition, gone)
	}
	if batch.Len() == 0 {
		return nil
	}
	return w.failed("write held members", w.conn.SendBatch(ctx, batch).Close())
}

// endHolds writes the rows of all held members, and returns their number.
func (w *writing) endHolds(ctx context.Context) (int, error) {
	found, err := w.holds(ctx, "partition = $1", w.cfg.Partition)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	jobs := map[string]*jobView{}
	for id, op := range found {
		jobs[id] = &jobView{id: id, held: op}
	}
	p := w.plan(jobs)
	p.member(voidHolds{})
	return len(found), w.write(ctx, p)
}

// SubmitHeld writes the rows of members of all partitions that are held before their first
// start: of those in these queues whose JobSchedulingInfo matches. An operator's request
// then finds them. It returns their number.
func SubmitHeld(ctx context.Context, tx pgx.Tx, queues []string, matches func(info []byte) bool) (int, error) {
	w := writing{Writer: New(Config{}), conn: tx, armada: pgstore.In(tx)}
	found, err := w.holds(ctx, "queue = ANY($1)", queues)
	if err != nil {
		return 0, err
	}
	var ops []schedulerdb.Op
	var gone []string
	for _, id := range slices.Sorted(maps.Keys(found)) {
		if op := found[id]; matches(op.SchedulingInfo) {
			ops, gone = append(ops, op), append(gone, id)
		}
	}
	if len(gone) == 0 {
		return 0, nil
	}
	if err := w.armada.Apply(ctx, ops); err != nil {
		return 0, w.failed("write the rows of held members", err)
	}
	_, err = tx.Exec(ctx, "DELETE FROM refloat_held WHERE job_id = ANY($1)", gone)
	return len(gone), w.failed("write the rows of held members", err)
}

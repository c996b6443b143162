package cutover

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/armada/writer"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/table"
	"github.com/refloat/refloat/internal/schedulerdb/pgstore"
)

// database is a connection to the job database.
type database struct{ conn *pgx.Conn }

func (s *Site) connect(ctx context.Context) (*database, error) {
	cfg, err := pgx.ParseConfig(s.JobDB)
	if err != nil || !strings.HasPrefix(s.JobDB, "postgres") { // err may contain the password
		return nil, errors.New("job database: the URL must name Armada's scheduler database: postgres://user@host:5432/database")
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("job database: %w", err)
	}
	return &database{conn}, nil
}

// closeTimeout is the timeout of closing the connection.
const closeTimeout = 5 * time.Second

func (d *database) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return d.conn.Close(ctx)
}

// inspect reads Armada's tables and ours in one snapshot.
func (d *database) inspect(ctx context.Context, state *State) error {
	err := pgx.BeginTxFunc(ctx, d.conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		state.Database = Database{Problem: pgstore.Check(ctx, tx)}
		if errors.Is(state.Database.Problem, pgstore.ErrUnavailable) {
			return state.Database.Problem
		}
		if !errors.Is(state.Database.Problem, pgstore.ErrForeign) {
			if err := live(ctx, tx, state); err != nil {
				return err
			}
		}
		return ours(ctx, tx, state)
	})
	if err != nil {
		return fmt.Errorf("read the job database: %w", err)
	}
	return nil
}

// live counts the unfinished jobs, and for each partition those that were submitted
// before the first message that it holds.
func live(ctx context.Context, tx pgx.Tx, state *State) error {
	rows, err := tx.Query(ctx, "SELECT job_set, submitted FROM jobs WHERE NOT terminated")
	if err != nil {
		return err
	}
	var set string
	var submitted int64
	_, err = pgx.ForEachRow(rows, []any{&set, &submitted}, func() error {
		state.Database.Live++
		p := &state.Partitions[eventlog.PartitionFor(set, len(state.Partitions))]
		if p.mayLack(submitted) {
			p.Older++
		}
		return nil
	})
	return err
}

// ours reads our positions and counts pending retries and held members, if the tables exist.
func ours(ctx context.Context, tx pgx.Tx, state *State) error {
	var hasPositions, waits, held, control bool
	const query = "SELECT to_regclass('refloat_positions') IS NOT NULL, to_regclass('refloat_waits') IS NOT NULL, to_regclass('refloat_held') IS NOT NULL, to_regclass('refloat_control') IS NOT NULL"
	if err := tx.QueryRow(ctx, query).Scan(&hasPositions, &waits, &held, &control); err != nil {
		return err
	}
	state.Database.Ours = hasPositions
	if waits {
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM refloat_waits").Scan(&state.Database.PendingRetries); err != nil {
			return err
		}
	}
	if held {
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM refloat_held").Scan(&state.Database.HeldMembers); err != nil {
			return err
		}
	}
	if control {
		if err := ourControl(ctx, tx, state); err != nil {
			return err
		}
	}
	if !hasPositions {
		return nil
	}
	found, err := readPositions(ctx, tx, "")
	if err != nil {
		return err
	}
	if state.Database.RolledBack, err = rolledBack(ctx, tx); err != nil {
		return err
	}
	for number, positions := range found {
		if number >= len(state.Partitions) {
			return fmt.Errorf("refloat_positions has a position in partition %d, but events has only %d partitions", number, len(state.Partitions))
		}
		state.Partitions[number].Positions = &positions
	}
	return nil
}

// readPositions reads the positions of our rows, by partition.
func readPositions(ctx context.Context, tx pgx.Tx, lock string) (map[int]jobdb.Positions, error) {
	const columns = `partition, seq, link, epoch, owner, in_to_ledger, in_to_entry, in_to_batch,
		decision_ledger, decision_entry, decision_batch, event_ledger, event_entry, event_batch` // older tables have no others
	rows, err := tx.Query(ctx, "SELECT "+columns+" FROM refloat_positions ORDER BY partition "+lock)
	if err != nil {
		return nil, err
	}
	found := map[int]jobdb.Positions{}
	var partition int
	var positions jobdb.Positions
	var link, owner []byte
	var seq, epoch int64
	c, d, e := &positions.Chain.InTo, &positions.Decisions, &positions.Events
	_, err = pgx.ForEachRow(rows, []any{
		&partition, &seq, &link, &epoch, &owner, &c.Ledger, &c.Entry, &c.Batch, &d.Ledger, &d.Entry, &d.Batch, &e.Ledger, &e.Entry, &e.Batch,
	}, func() error {
		positions.Chain.Seq, positions.Chain.Epoch = uint64(seq), uint64(epoch)
		copy(positions.Chain.Link[:], link)
		copy(positions.Chain.Owner[:], owner)
		found[partition] = positions
		return nil
	})
	return found, err
}

// rolledBack returns when our positions were rolled back, or 0. Older tables do not have
// the column.
func rolledBack(ctx context.Context, tx pgx.Tx) (at int64, err error) {
	err = tx.QueryRow(ctx, "SELECT COALESCE(min((to_jsonb(p)->>'given_back')::bigint), 0) FROM refloat_positions AS p").Scan(&at)
	return at, err
}

// empty empties our tables before a new cut-over.
func empty(ctx context.Context, tx pgx.Tx) error {
	const query = `SELECT string_agg(quote_ident(relname), ', ') FROM pg_class
		WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND relname LIKE 'refloat\_%' AND relname <> 'refloat_schema'`
	var tables string
	if err := tx.QueryRow(ctx, query).Scan(&tables); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "TRUNCATE "+tables)
	return err
}

// ourControl reads our positions in the control-plane topic. If there are any, a
// partition without one is new and ours from its beginning.
func ourControl(ctx context.Context, tx pgx.Tx, state *State) error {
	found, err := readControl(ctx, tx, "")
	if err != nil || len(found) == 0 {
		return err
	}
	for i := range state.Control {
		p := &state.Control[i]
		at, there := found[p.Number]
		if !there {
			at = eventlog.Start
		}
		p.Positions = &jobdb.Positions{Events: at}
	}
	return nil
}

// readControl reads our positions in the control-plane topic, by partition.
func readControl(ctx context.Context, tx pgx.Tx, lock string) (map[int]eventlog.Position, error) {
	rows, err := tx.Query(ctx, "SELECT partition, ledger, entry, batch FROM refloat_control"+lock)
	if err != nil {
		return nil, err
	}
	found := map[int]eventlog.Position{}
	var partition int
	var at eventlog.Position
	_, err = pgx.ForEachRow(rows, []any{&partition, &at.Ledger, &at.Entry, &at.Batch}, func() error {
		found[partition] = at
		return nil
	})
	return found, err
}

func putControl(ctx context.Context, tx pgx.Tx, p *Partition) error {
	const query = "INSERT INTO refloat_control (partition, ledger, entry, batch) VALUES ($1, $2, $3, $4)"
	at := p.Applied.At
	_, err := tx.Exec(ctx, query, p.Number, at.Ledger, at.Entry, at.Batch)
	return err
}

// lockTimeout is how long to wait for the locks of other writers.
const lockTimeout = 30 * time.Second

// write runs do in one transaction.
func (d *database) write(ctx context.Context, what string, do func(tx pgx.Tx) error) error {
	err := pgx.BeginFunc(ctx, d.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT set_config('lock_timeout', $1, true)", fmt.Sprintf("%dms", lockTimeout.Milliseconds())); err != nil {
			return err
		}
		return do(tx)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// put inserts a row into one of our tables.
func put[T any](ctx context.Context, tx pgx.Tx, to *table.Of[T], row *T) error {
	numbers, args := make([]string, len(to.Columns)), make([]any, len(to.Columns))
	for i, field := range to.Fields(row, nil) {
		numbers[i], args[i] = fmt.Sprintf("$%d", i+1), table.Plain(field)
	}
	_, err := tx.Exec(ctx, fmt.Sprintf("INSERT INTO refloat_%s (%s) VALUES (%s)", to.Name, strings.Join(to.Columns, ", "), strings.Join(numbers, ", ")), args...)
	return err
}

// awaitForgotten waits until Armada's scheduler has had time to forget the jobs that are to
// be requeued: before that it would ignore them.
func (d *database) awaitForgotten(ctx context.Context, now time.Time) error {
	var last *int64
	if err := d.conn.QueryRow(ctx, "SELECT max(raise_at) FROM refloat_waits WHERE forgetting").Scan(&last); err != nil || last == nil {
		return err
	}
	const most = 10 * time.Second // it should be seconds; more is a difference between clocks
	return eventlog.Sleep(ctx, min(time.Unix(0, *last).Sub(now), most))
}

// endRetries ends pending retries, taking into account the events of each partition that
// Armada's ingester will apply.
func (s *Site) endRetries(ctx context.Context, tx pgx.Tx, state *State) (err error) {
	topic, err := s.Cluster.Open(s.Events)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, topic.Close()) }()
	for i := range state.Partitions {
		if err := s.endRetriesIn(ctx, tx, eventlog.ToEnd(ctx, topic), &state.Partitions[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Site) endRetriesIn(ctx context.Context, tx pgx.Tx, topic eventlog.Topic, p *Partition) (err error) {
	after := p.EventsAt
	if after.Why != nil {
		after = p.Applied // Armada's subscription stays where it is
	}
	var events eventlog.Reader
	if after.Why == nil {
		if events, err = topic.Open(p.Number, after.At); err != nil {
			return fmt.Errorf("read %s after %v: %w", p.name(), after.At, err)
		}
		defer func() { err = errors.Join(err, events.Close()) }()
	}
	_, err = writer.EndRetries(ctx, tx, writer.Config{Partition: p.Number, Mode: writer.HoldBack, NodeLabel: s.NodeLabel}, events)
	return err
}

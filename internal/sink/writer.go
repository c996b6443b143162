package sink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
)

// Config is the configuration of a Writer. Events, Decisions and DB are required.
type Config struct {
	Events, Decisions eventlog.Topic
	DB                jobdb.Store
	// MaxRows is about how many rows one transaction writes: envelopes are taken
	// until their events and records reach it. An envelope is never divided.
	// Default 5000.
	MaxRows int
	// MaxBytes is about how many bytes of events and decisions one transaction takes, in
	// the same way. Default 8 MiB. As much is read ahead.
	MaxBytes int
	// KeepRows is about how many rows of idle jobs stay in memory per partition,
	// so that they need not be loaded again. Default 50 000.
	KeepRows int
	// ReleaseAfter is the age at which an event is released: applied without waiting for
	// the chain any longer (protocol.md 13). Its age counts from the publish time in this
	// log, even if it was fed from a recording. 0: never. One release takes events until
	// their rows reach MaxRows.
	ReleaseAfter time.Duration
	// Now is the clock for releases, required with ReleaseAfter and Retain. It must agree with that
	// of the events' publishers to well within the limit.
	Now func() time.Time
	// Hit, if set, is called at the labels of a transaction: loaded, written,
	// before-commit, committed, and of one that prunes: pruning, pruned. Its error ends the attempt there, with the same result as
	// a crash at that point. Partitions that run concurrently call it concurrently.
	Hit   func(label string) error
	Hooks Hooks
	// Retain says for how long rows of jobs that are over stay. Now is required with it.
	Retain Retention
	// Mirror, if set, creates the mirror of a partition. Now is required with it.
	Mirror func(partition int) Mirror
}

// Hooks are called on events of the writer; nil hooks are not. Partitions that run
// concurrently call them concurrently.
type Hooks struct {
	// Committed is called after each transaction was committed.
	Committed func(Batch)
	// Released is called for each release after it was committed, and after Committed.
	Released func(jobdb.Release)
	// Moved is called when another writer moved a partition's position.
	Moved func(partition int)
	// Pruned is called after each transaction that pruned jobs.
	Pruned func(Prune)
	// Clamped is called when jobs are kept for the horizon, which is longer than
	// Retain.For.
	Clamped func(partition int, horizon time.Duration)
	// Ignored is called for each message of the decisions log that is not accepted.
	Ignored func(partition int, why chain.Ignored, at eventlog.Position)
	// Retry is called with the reason why Run retries a partition, and Recovered when
	// that helped.
	Retry     func(partition int, err error)
	Recovered func(partition int)
	// Now is the clock for Batch.Took.
	Now func() time.Time
}

// Batch is the content of one transaction: envelopes, or none and one release.
type Batch struct {
	Partition int
	Envelopes int
	Messages  int
	Rows      int
	Costs     []*jobdb.Cost
	Positions jobdb.Positions
	Published int64         // publish time of the last message that it applied; 0: none
	Took      time.Duration // loading, applying, writing and committing; 0 without Hooks.Now
}

// Writer is the ingester: it follows each partition's decision chain and writes
// the resulting rows.
type Writer struct {
	cfg   Config
	parts []*part
}

// part is one partition. With a nil follower, its position must be read first.
type part struct {
	number       int
	follower     *follow.Follower
	positions    jobdb.Positions   // committed, as far as we know
	origin       eventlog.Position // up to here another ingester took in the events
	rows         *Rows             // as committed at positions
	batch        batch             // taken from the logs and not committed
	next         batch             // what follows on it, read while the database writes
	ahead        *ahead            // what may be released next; nil: not open
	releaseCheck time.Time         // when a release may be due
	prune        pruning
	mirror       Mirror // nil: Armada's tables are not written
}

// batch is a number of whole envelopes, or one release.
type batch struct {
	pieces    []piece
	envelopes int
	weight    int
	bytes     int // of payloads and records
	messages  int
	positions jobdb.Positions // after it
	published int64
	err       error // why no more could be read
}

// piece is one envelope or release.
type piece struct {
	acts     []*jobdb.Activation
	release  *jobdb.Release // nil: an envelope
	messages []Message
}

// New returns a writer for all partitions.
func New(cfg Config) (*Writer, error) {
	if cfg.Events == nil || cfg.Decisions == nil || cfg.DB == nil {
		return nil, errors.New("sink: Config lacks Events, Decisions or DB")
	}
	if cfg.ReleaseAfter < 0 || (cfg.ReleaseAfter > 0 || cfg.Mirror != nil) && cfg.Now == nil {
		return nil, errors.New("sink: Config.ReleaseAfter is negative, or Now is missing")
	}
	if r := cfg.Retain; r.For < 0 || r.FollowArmada && (r.For > 0 || cfg.Mirror == nil) || r.Prunes() && cfg.Now == nil {
		return nil, errors.New("sink: Config.Retain is negative or ambiguous, or lacks Mirror or Now")
	}
	if e, d := cfg.Events.Partitions(), cfg.Decisions.Partitions(); e != d {
		return nil, fmt.Errorf("sink: events has %s, decisions has %d", plural.Of(e, "partition"), d)
	}
	if cfg.MaxRows <= 0 {
		cfg.MaxRows = 5000
	}
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = 8 << 20
	}
	if cfg.KeepRows <= 0 {
		cfg.KeepRows = 50_000
	}
	w := &Writer{cfg: cfg}
	for p := range cfg.Events.Partitions() {
		part := &part{number: p}
		if cfg.Mirror != nil {
			part.mirror = cfg.Mirror(p)
		}
		w.parts = append(w.parts, part)
	}
	return w, nil
}

// Advance does one step of a partition without waiting for the logs: it takes the
// available envelopes, up to MaxRows, and commits them in one transaction; if there are
// none, it makes a release if one is due. If it returns no progress and no error, there is
// nothing to do now. After any error the partition restarts at its committed position, so
// Advance may be called again; the class of the error tells whether that may help.
//
// Different partitions may be advanced concurrently, a single one may not.
func (w *Writer) Advance(ctx context.Context, partition int) (progress bool, err error) {
	p := w.parts[partition]
	progress, err = w.advance(ctx, p)
	if err != nil {
		err = fmt.Errorf("ingest partition %d: %w", partition, errors.Join(err, p.reset()))
	}
	return progress, err
}

func (w *Writer) advance(ctx context.Context, p *part) (bool, error) {
	if p.follower == nil {
		if err := w.begin(ctx, p); err != nil {
			return false, err
		}
	}
	if w.pruneDue(p) {
		return w.pruned(ctx, p)
	}
	if err := w.gather(p, &p.batch, p.positions); err != nil {
		return false, err
	}
	if len(p.batch.pieces) == 0 {
		if err := w.release(p); err != nil {
			return false, err
		}
	}
	if len(p.batch.pieces) == 0 {
		if !w.mirrorDue(p) {
			return false, nil
		}
		p.batch.positions = p.positions
	}
	start := w.now()
	changes, err := w.commit(ctx, p)
	if errors.Is(err, jobdb.ErrMoved) { // another writer was here: continue from its position
		if w.cfg.Hooks.Moved != nil {
			w.cfg.Hooks.Moved(p.number)
		}
		return true, p.reset()
	}
	if err != nil {
		return false, err
	}
	w.notify(p, changes, start)
	p.positions, p.batch, p.next = p.batch.positions, p.next, batch{}
	p.rows.Forget(w.cfg.KeepRows)
	if err := p.closeAhead(); err != nil {
		return true, err
	}
	return true, w.hit("committed")
}

// begin reads the partition's position and follows from there.
func (w *Writer) begin(ctx context.Context, p *part) error {
	tx, err := w.cfg.DB.Begin(ctx, p.number)
	if err != nil {
		return fmt.Errorf("read the positions: %w", err)
	}
	p.positions = tx.Positions()
	p.origin, err = tx.Origin(ctx)
	if err := errors.Join(err, tx.Rollback()); err != nil {
		return fmt.Errorf("read the positions: %w", err)
	}
	if err := w.mustReach(p); err != nil {
		return err
	}
	f, err := follow.Open(w.cfg.Events, w.cfg.Decisions, p.number, follow.Positions{Chain: p.positions.Chain, Decisions: p.positions.Decisions})
	if err != nil {
		return err
	}
	f.SkipInput(p.origin)
	if w.cfg.Hooks.Ignored != nil {
		f.OnIgnored = func(why chain.Ignored, at eventlog.Position) { w.cfg.Hooks.Ignored(p.number, why, at) }
	}
	p.follower, p.rows, p.batch = f, NewRows(p.number), batch{}
	if p.mirror != nil {
		p.mirror.Reset()
	}
	return nil
}

// mustReach returns an error if a log does not reach the position of the rows: they follow
// from durable messages, so the log has lost its end, or is a different one.
func (w *Writer) mustReach(p *part) error {
	for _, l := range []struct {
		name  string
		topic eventlog.Topic
		at    eventlog.Position
	}{{"events", w.cfg.Events, p.positions.Events}, {"decisions", w.cfg.Decisions, p.positions.Decisions}} {
		if l.topic == w.cfg.Events && l.at.Compare(p.origin) <= 0 {
			continue // another ingester took that in, so it may have been deleted since
		}
		if l.at == eventlog.Start {
			continue
		}
		end, err := eventlog.Reach(l.topic, p.number)
		if err != nil {
			return fmt.Errorf("find how far %s reach: %w", l.name, err)
		}
		if end.Compare(l.at) < 0 {
			return fmt.Errorf("%w: the job database follows from %s up to %v, the log ends at %v", chain.ErrMissing, l.name, l.at, end)
		}
	}
	return nil
}

// reset discards everything that is not committed.
func (p *part) reset() error {
	f, a := p.follower, p.ahead
	p.follower, p.rows, p.batch, p.next = nil, nil, batch{}, batch{}
	p.ahead, p.releaseCheck, p.prune.pass = nil, time.Time{}, jobdb.Candidates{}
	var errs []error
	if f != nil {
		errs = append(errs, f.Close())
	}
	if a != nil {
		errs = append(errs, a.reader.Close())
	}
	return errors.Join(errs...)
}

// gather takes envelopes into a batch that follows on positions, until there are none or the
// batch is large enough.
func (w *Writer) gather(p *part, b *batch, positions jobdb.Positions) error {
	if len(b.pieces) > 0 {
		positions = b.positions
	}
	for b.err == nil && b.weight < w.cfg.MaxRows && b.bytes < w.cfg.MaxBytes {
		s, err := p.follower.Next()
		if err != nil || s == nil {
			return err
		}
		acts, messages, err := Split(s, p.number, positions.Events)
		if err != nil {
			return err
		}
		positions = after(positions, p.follower.Positions())
		for i := range messages {
			if p.mirrors(&messages[i]) {
				p.mirror.Read(&messages[i])
			}
		}
		b.add(piece{acts: acts, messages: messages})
		b.envelopes++
		b.weight += 1 + len(s.Records)
		for _, r := range s.Envelope.Records {
			b.bytes += len(r)
		}
		b.positions = positions
	}
	return b.err
}

func (b *batch) add(p piece) {
	b.pieces = append(b.pieces, p)
	b.messages += len(p.messages)
	for i := range p.messages {
		b.bytes += len(p.messages[i].Log.Payload)
		if m := &p.messages[i]; !m.Superseded {
			b.weight += m.eventCount()
			b.published = m.Log.Publish
		}
	}
}

// commit writes the batch in one transaction and returns what it changed.
func (w *Writer) commit(ctx context.Context, p *part) (_ *jobdb.Changes, err error) {
	tx, err := w.cfg.DB.Begin(ctx, p.number)
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	if tx.Positions() != p.positions {
		return nil, jobdb.ErrMoved
	}
	if err := w.load(ctx, tx, p); err != nil {
		return nil, err
	}
	if err := w.hit("loaded"); err != nil {
		return nil, err
	}
	for _, piece := range p.batch.pieces {
		p.rows.Put(piece.acts)
		if piece.release != nil {
			p.rows.putRelease(piece.release)
		}
		for i := range piece.messages {
			p.rows.Apply(&piece.messages[i])
			p.mirrored(&piece.messages[i])
		}
	}
	changes := p.rows.Take()
	if err := w.write(ctx, tx, p, changes); err != nil {
		return nil, fmt.Errorf("write: %w", err)
	}
	if err := w.mirror(ctx, tx, p); err != nil {
		return nil, err
	}
	if err := w.hit("written"); err != nil {
		return nil, err
	}
	if err := w.hit("before-commit"); err != nil {
		return nil, err
	}
	if err := tx.Commit(ctx, p.positions, p.batch.positions); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	return changes, nil
}

// write writes rows, and reads the next batch meanwhile if the database can be written to so.
func (w *Writer) write(ctx context.Context, tx jobdb.Tx, p *part, changes *jobdb.Changes) error {
	s, ok := tx.(jobdb.Sender)
	if !ok {
		return tx.Write(ctx, changes)
	}
	wait := s.Send(ctx, changes)
	p.next.err = w.gather(p, &p.next, p.batch.positions)
	return wait()
}

func (w *Writer) load(ctx context.Context, tx jobdb.Tx, p *part) error {
	var messages [][]Message
	for _, piece := range p.batch.pieces {
		messages = append(messages, piece.messages)
	}
	keys := p.rows.Keys(messages...)
	found, err := tx.Load(ctx, keys)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	p.rows.Admit(keys, found)
	return nil
}

func (w *Writer) hit(label string) error {
	if w.cfg.Hit == nil {
		return nil
	}
	return w.cfg.Hit(label)
}

func (w *Writer) now() time.Time {
	if w.cfg.Hooks.Now == nil {
		return time.Time{}
	}
	return w.cfg.Hooks.Now()
}

func (w *Writer) notify(p *part, changes *jobdb.Changes, start time.Time) {
	if w.cfg.Hooks.Committed != nil {
		w.cfg.Hooks.Committed(Batch{
			Partition: p.number, Envelopes: p.batch.envelopes, Messages: p.batch.messages, Rows: changes.Rows(), Costs: changes.Costs,
			Positions: p.batch.positions, Published: p.batch.published, Took: w.now().Sub(start),
		})
	}
	if len(p.batch.pieces) > 0 && w.cfg.Hooks.Released != nil {
		if r := p.batch.pieces[0].release; r != nil {
			w.cfg.Hooks.Released(*r)
		}
	}
}

// Close closes what the writer reads. The database belongs to its owner.
func (w *Writer) Close() error {
	var errs []error
	for _, p := range w.parts {
		errs = append(errs, p.reset())
	}
	return errors.Join(errs...)
}

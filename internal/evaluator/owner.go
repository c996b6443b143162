package evaluator

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/projection"
)

// Store keeps a partition's projection.
type Store interface {
	projection.KV
	NewBatch() projection.Batch
	Commit(b projection.Batch, meta []byte) error // visible, not yet durable
	Sync() error                                  // everything committed is durable
	Meta() ([]byte, error)
}

// Config is the configuration of an Owner. Partition, Store, Events, Decisions,
// Policies, Publisher and Random are required.
type Config struct {
	Partition int
	Store     Store
	Events    eventlog.Topic
	Decisions eventlog.Topic
	Policies  *policylog.Log
	Publisher eventlog.Publisher
	Random    io.Reader // for owner ids

	// Window is the maximum number of envelopes published and not read back (8).
	Window int
	// MaxMessages is the maximum number of messages that an envelope covers (1024).
	MaxMessages int
	// ReadBackTimeout is the timeout for reading back an envelope (30 s).
	ReadBackTimeout time.Duration
	// SaveEvery is how often the state is made durable, and its input acknowledged; 0: after each envelope.
	// A job that several envelopes changed meanwhile is written once.
	SaveEvery time.Duration
	// Semantics is the minimum version of the semantics to decide by: an owner activates it
	// if the log names an earlier one. 0: the version that the log names; for an empty log,
	// the newest. An activation cannot be undone.
	Semantics uint32
	// AcceptPartitions acknowledges that events now has this number of partitions,
	// although the chain was written with another (ErrRepartitioned).
	AcceptPartitions int
	// AcceptHistory is where to continue if events no longer reaches back to the end of
	// the chain (ErrHistory), exclusive; Start: at the first message held. On an empty
	// chain it is where to begin. nil: refuse.
	AcceptHistory *eventlog.Position
	// AcceptEmptyDecisions acknowledges that an empty decision log was always empty
	// (ErrEmptied).
	AcceptEmptyDecisions bool
	// Acknowledged, if set, returns the position up to which evaluators acknowledged
	// events; Start: none. It is called if the chain is empty.
	Acknowledged func() (eventlog.Position, error)
	// CacheJobs, if set, returns the size of the state's cache (projection.State).
	CacheJobs func() int
	// AcceptedBy names who made these acknowledgements, for the record.
	AcceptedBy string
	// Fit remembers which messages had records that the log did not take; nil: it remembers nothing, and
	// an envelope that is too large loses the partition each time.
	Fit *Fit
	// Synced, if set, is called when everything committed is durable, for acknowledgements
	// and checkpoints. The store then holds the state at the position.
	Synced func(positions follow.Positions) error
	Hooks  Hooks
}

// Hooks let a program observe an owner. A nil field is not called.
type Hooks struct {
	// Point is called at each named point of the loop; its error stops the owner there,
	// like a crash.
	Point     func(point string) error
	Committed func(c Commit)
	Ignored   func(why chain.Ignored)
	Phase     func(phase string)
	// Began is called when the owner goes live: with the policy generation in force, and the last message that was decided.
	Began func(generation uint64, decided eventlog.Position)
}

// DefaultSaveEvery is what programs use as Config.SaveEvery: longer saves little, and is what a crash has to fold again.
const DefaultSaveEvery = 250 * time.Millisecond

// Commit is one envelope that was read back and committed.
type Commit struct {
	Envelope *chain.Envelope
	Records  []chain.Record
	At       eventlog.Position
	Waited   time.Duration // from publishing to reading back
	// Published is when the last message that it covers was published, in Unix
	// nanoseconds by this log's clock; 0: it covers none.
	Published int64
}

// The points of the loop, in the order of one round.
const (
	PointReceived  = "received"
	PointFolded    = "folded"
	PointPublished = "published"
	PointReadBack  = "read-back"
	PointCommitted = "committed"
	PointSynced    = "synced"
	PointAcked     = "acked"
	PointClaimed   = "claimed"
	PointCaughtUp  = "caught-up"
)

// Points lists all points.
var Points = [...]string{
	PointReceived, PointFolded, PointPublished, PointReadBack, PointCommitted, PointSynced, PointAcked, PointClaimed, PointCaughtUp,
}

// ErrLost means that another owner has the partition now, or that this is unknown. Start
// over with a new Owner after a random back-off.
var ErrLost = errors.New("ownership lost")

// Owner is the life cycle of one partition, from restore to loss. Advance does what can
// be done now, and never waits for a log.
type Owner struct {
	cfg       Config
	phase     phase
	follower  *follow.Follower
	proc      *Processor
	positions follow.Positions // committed
	stored    follow.Positions // up to which the store has the state
	saved     follow.Positions // up to which that is durable, and acknowledged
	savedAt   int64            // when the state was last written to be saved
	claim     chain.Hash       // link of the claim, or of the accepted history, that we are waiting for
	skipTo    eventlog.Position
	rebuild   *rebuild // nil: the state follows from the complete input
	scan      *follow.Scan
	cause     error // the reason for the scan
	sentAt    int64 // when it was sent

	window   []inFlight
	unsent   []byte    // the last envelope of the window, which the publisher had no room for; nil: it is sent
	tip      chain.End // of the last envelope published
	live     liveReaders
	draining bool
}

// Errors that only an operator can resolve.
var (
	// ErrHistory means that events no longer reaches back to the end of the chain.
	ErrHistory = errors.New("events do not reach back to where the decision log ends")
	// ErrRepartitioned means that the number of partitions of events has changed since the
	// chain was written: job sets have moved.
	ErrRepartitioned = errors.New("the number of partitions of events has changed")
)

type phase uint8

const (
	restoring phase = iota
	catchingUp
	awaitingClaim
	awaitingPolicies
	running
	scanningHistory
)

// Live is the phase of an owner that decides, for Hooks.Phase.
const Live = "live"

var phaseNames = [...]string{"restoring", "catching up", "claiming", "awaiting policies", Live, "looking back"}

// NewOwner checks the configuration and fills in defaults.
func NewOwner(c Config) *Owner {
	c.Window = cmp.Or(c.Window, 8)
	c.MaxMessages = cmp.Or(c.MaxMessages, 1024)
	c.ReadBackTimeout = cmp.Or(c.ReadBackTimeout, 30*time.Second)
	return &Owner{cfg: c, skipTo: eventlog.Start}
}

// Advance does what can be done now, at a time in Unix nanoseconds, and reports whether
// it did anything. After an error the owner must be closed.
func (o *Owner) Advance(now int64) (bool, error) {
	switch o.phase {
	case restoring:
		return true, o.restore()
	case catchingUp:
		return o.catchUp(now)
	case awaitingClaim:
		return o.awaitClaim(now)
	case awaitingPolicies:
		return o.awaitPolicies()
	case running:
		return o.advanceLive(now)
	case scanningHistory:
		return o.scanHistory()
	}
	return false, fmt.Errorf("owner in phase %d", o.phase)
}

// Phase returns the name of the owner's phase, for people.
func (o *Owner) Phase() string { return phaseNames[o.phase] }

// Drain stops the owner from processing more input; published envelopes are still read
// back.
func (o *Owner) Drain() { o.draining = true }

// Changed returns the channels that announce work for Advance; one may be nil.
func (o *Owner) Changed() [3]<-chan struct{} {
	if o.follower == nil {
		return [3]<-chan struct{}{}
	}
	if o.phase == scanningHistory {
		return [3]<-chan struct{}{nil, o.scan.Changed(), nil}
	}
	if o.phase == running {
		return [3]<-chan struct{}{o.live.events.Changed(), o.live.decisions.Changed(), o.cfg.Policies.Changed()}
	}
	events, decisions := o.follower.Changed()
	return [3]<-chan struct{}{events, decisions, o.cfg.Policies.Changed()}
}

// Drained reports that the owner is live, and that all its published envelopes are committed and saved.
func (o *Owner) Drained() bool {
	return o.phase == running && len(o.window) == 0 && o.saved == o.positions
}

// Positions returns the positions up to which the owner has committed; the store may be behind (Config.SaveEvery).
func (o *Owner) Positions() follow.Positions { return o.positions }

// Progress returns the progress of its processor, which may be ahead of Positions.
func (o *Owner) Progress() Progress {
	if o.proc == nil {
		return Progress{}
	}
	return o.proc.Progress
}

// Close closes its readers; the store, the publisher and the logs belong to the caller.
func (o *Owner) Close() (err error) {
	if o.scan != nil {
		err, o.scan = o.scan.Close(), nil
	}
	if o.follower == nil {
		return err
	}
	return errors.Join(err, o.follower.Close())
}

func (o *Owner) enter(p phase) {
	o.phase = p
	if o.cfg.Hooks.Phase != nil {
		o.cfg.Hooks.Phase(phaseNames[p])
	}
	if p == running && o.cfg.Hooks.Began != nil {
		o.cfg.Hooks.Began(o.proc.Progress.Generation, o.tip.InTo)
	}
}

func (o *Owner) point(name string) error {
	if o.cfg.Hooks.Point == nil {
		return nil
	}
	return o.cfg.Hooks.Point(name)
}

// restore returns to the committed state.
func (o *Owner) restore() error {
	b, err := o.cfg.Store.Meta()
	if err != nil {
		return fmt.Errorf("read state: %w", err)
	}
	m, err := decodeMeta(b)
	if err != nil {
		return err
	}
	if v := max(m.Progress.Semantics, o.cfg.Semantics); v > SemanticsVersion {
		return fmt.Errorf("%w: the state of partition %d, or this configuration, asks for version %d of the semantics, this program knows versions up to %d; upgrade it",
			chain.ErrNewer, o.cfg.Partition, v, SemanticsVersion)
	}
	if m.Rebuilding {
		if err := o.wipe(); err != nil {
			return err
		}
		m = emptyMeta()
	}
	state, err := o.newState(&m)
	if err != nil {
		return err
	}
	if err := o.mustReach(m.Positions); err != nil {
		return err
	}
	o.follower, err = follow.Open(o.cfg.Events, o.cfg.Decisions, o.cfg.Partition, m.Positions)
	if err != nil {
		return err
	}
	o.watchIgnored()
	o.positions = m.Positions
	o.proc = &Processor{State: state, Progress: m.Progress}
	o.enter(catchingUp)
	return nil
}

func (o *Owner) newState(m *meta) (*projection.State, error) {
	state, err := projection.NewState(o.cfg.Store, m.Watermark, m.Horizon)
	if err != nil {
		return nil, err
	}
	state.CacheJobs = o.cfg.CacheJobs
	return state, nil
}

func (o *Owner) watchIgnored() {
	if o.cfg.Hooks.Ignored != nil {
		o.follower.OnIgnored = func(why chain.Ignored, _ eventlog.Position) { o.cfg.Hooks.Ignored(why) }
	}
}

// catchUp applies what the log has after the committed state. At the end of the log
// the owner claims the partition.
func (o *Owner) catchUp(now int64) (bool, error) {
	s, err := o.follower.Next()
	if err != nil {
		return o.withoutInput(err)
	}
	if s != nil {
		return true, o.applyBatch(s)
	}
	end, err := o.cfg.Decisions.End(o.cfg.Partition)
	if err != nil {
		return false, fmt.Errorf("find the end of decisions: %w", err)
	}
	if o.follower.Processed().Compare(end) < 0 {
		return false, nil // more is about to arrive
	}
	if err := o.point(PointCaughtUp); err != nil {
		return false, err
	}
	if err := o.mayClaim(); err != nil {
		return false, err
	}
	return true, o.sendClaim(now)
}

// applyBatch folds a batch with the decisions in the log, and commits it.
func (o *Owner) applyBatch(s *follow.Batch) error {
	if r := s.Rebuilt(); r != nil && o.rebuild == nil {
		return o.startRebuild(rebuild{from: r.From, until: s.Envelope.Seq})
	}
	o.proc.Activate(s.Records)
	logged := LoggedIn(s.Accepted)
	if o.rebuild != nil {
		return o.rebuildBatch(s, logged)
	}
	for i := range s.Messages {
		if err := o.proc.Replay(&s.Messages[i], logged); err != nil {
			return err
		}
	}
	if len(logged.Records) > 0 {
		return fmt.Errorf("%w: envelope %d holds %d records that none of its messages gives", ErrDiverged, s.Envelope.Seq, len(logged.Records))
	}
	return o.commitBatch(s)
}

// commitBatch commits the changes of a batch.
func (o *Owner) commitBatch(s *follow.Batch) error {
	batch := o.cfg.Store.NewBatch()
	flush, err := o.proc.State.Flush(batch)
	if err != nil {
		return err
	}
	positions := follow.Positions{Chain: s.End, Decisions: s.Position}
	return o.commit(batch, flush, o.metaAt(positions))
}

func (o *Owner) metaAt(positions follow.Positions) meta {
	return meta{Positions: positions, Progress: o.proc.Progress, Watermark: o.proc.State.Watermark, Horizon: o.proc.State.Horizon, Rebuilding: o.rebuild != nil}
}

// commit takes an envelope as decided, and makes the changes in a batch visible in the store, with the position that
// belongs to them; nil: those of the envelope are in none yet.
func (o *Owner) commit(batch projection.Batch, flush uint64, m meta) error {
	if batch != nil {
		b, err := m.encode()
		if err != nil {
			return err
		}
		if err := o.cfg.Store.Commit(batch, b); err != nil {
			return err
		}
		o.proc.State.Committed(flush)
		o.stored = m.Positions
	}
	o.cfg.Fit.accepted(m.Positions.Chain.InTo)
	o.positions = m.Positions
	return o.point(PointCommitted)
}

// sendClaim publishes a claim of the next epoch, at the end of the chain.
func (o *Owner) sendClaim(now int64) error {
	end := o.positions.Chain
	claim := &chain.OwnerClaim{Epoch: end.Epoch + 1, LastSeq: end.Seq, LastLink: end.Link, Partitions: uint32(o.cfg.Events.Partitions())}
	if _, err := io.ReadFull(o.cfg.Random, claim.Owner[:]); err != nil {
		return fmt.Errorf("draw an owner id: %w", err)
	}
	env := &chain.Envelope{
		Seq: end.Seq + 1, Link: end.Link, Epoch: claim.Epoch, Owner: claim.Owner,
		InFrom: end.InTo, InTo: end.InTo, Records: [][]byte{chain.AppendRecord(nil, claim)},
	}
	return o.sendAwaited(env, now)
}

// sendAcceptance publishes that events up to a position are gone.
func (o *Owner) sendAcceptance(now int64) error {
	end := o.positions.Chain
	env := &chain.Envelope{
		Seq: end.Seq + 1, Link: end.Link, Epoch: end.Epoch, Owner: end.Owner, InFrom: end.InTo, InTo: o.skipTo,
		Records: [][]byte{chain.AppendRecord(nil, &chain.HistoryAccepted{By: o.cfg.AcceptedBy})},
	}
	o.skipTo = eventlog.Start
	return o.sendAwaited(env, now)
}

func (o *Owner) sendAwaited(env *chain.Envelope, now int64) error {
	raw := env.Append(nil)
	o.claim, o.sentAt = chain.Link(raw), now
	if err := o.cfg.Publisher.Publish(raw); err != nil {
		return fmt.Errorf("%w: publish claim: %w", ErrLost, err)
	}
	o.enter(awaitingClaim)
	return nil
}

// awaitClaim reads until the claim comes back. If another owner's envelope comes first,
// that one is effective, and this attempt has failed.
func (o *Owner) awaitClaim(now int64) (bool, error) {
	s, err := o.follower.Next()
	if err != nil {
		return false, err
	}
	if s == nil {
		if err := o.cfg.Publisher.Err(); err != nil {
			return false, fmt.Errorf("%w: publish claim: %w", ErrLost, err)
		}
		if now-o.sentAt > int64(o.cfg.ReadBackTimeout) {
			return false, fmt.Errorf("%w: the claim was not read back within %v", ErrLost, o.cfg.ReadBackTimeout)
		}
		return false, nil
	}
	if err := o.applyBatch(s); err != nil {
		return false, err
	}
	if s.End.Link != o.claim {
		return false, fmt.Errorf("%w: envelope %d of epoch %d came before our claim", ErrLost, s.Envelope.Seq, s.Envelope.Epoch)
	}
	if err := o.point(PointClaimed); err != nil {
		return false, err
	}
	if o.rebuild != nil {
		return true, o.sendRebuilt(now)
	}
	if o.skipTo != eventlog.Start {
		return true, o.sendAcceptance(now)
	}
	o.enter(awaitingPolicies)
	return true, nil
}

// awaitPolicies reads the policies log to its end, and waits until the generation in
// force is available.
func (o *Owner) awaitPolicies() (bool, error) {
	if ended, err := o.cfg.Policies.AtEnd(); err != nil || !ended {
		return false, err
	}
	generation := o.proc.Progress.Generation
	set, ok, err := o.cfg.Policies.Held(generation)
	if err != nil {
		return false, fmt.Errorf("generation %d is in force: %w", generation, err)
	}
	if !ok {
		return false, nil
	}
	if d := set.Digest(); generation != 0 && d != o.proc.Progress.PolicySet {
		return false, fmt.Errorf("%w: generation %d has digest %x in the policies log, %x in the decision log",
			policylog.ErrUnusable, generation, d, o.proc.Progress.PolicySet)
	}
	o.proc.Rules = Rules{Generation: generation, Set: set.Set}
	if err := o.cfg.Policies.Rest(); err != nil {
		return false, err
	}
	return true, o.startLive()
}

package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/dirlock"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/eventlog/topiccopy"
	"github.com/refloat/refloat/internal/plural"
)

// Source is a deployment to archive.
type Source struct {
	Logs  audit.Logs
	Names Names
}

// Options are the options of Create.
type Options struct {
	Partitions []int // to archive; nil: all
	// WithoutEvents archives decisions although events that they cover were deleted. These
	// decisions can never be derived again.
	WithoutEvents bool
	Now           time.Time
	Progress      func(what string, messages int) // may be nil
}

// ErrEventsGone reports that events that the decision log covers were deleted before they
// were archived.
var ErrEventsGone = errors.New("events were deleted before they were archived")

// Create copies what the logs of a deployment hold behind the archive in a directory, as
// its next range, and reads the copy again. It begins a new archive if there is none. It
// returns nil if there is nothing new.
//
// If it is interrupted, the next call continues the copy.
func Create(ctx context.Context, dir string, src Source, o Options) (_ *Manifest, err error) {
	if o.Progress == nil {
		o.Progress = func(string, int) {}
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("create archive: %w", err)
	}
	lock, err := dirlock.Lock(dir)
	if errors.Is(err, dirlock.ErrHeld) {
		return nil, fmt.Errorf("%s: another process is adding to this archive", dir)
	} else if err != nil {
		return nil, fmt.Errorf("lock archive: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	a, problems, err := load(dir)
	if err != nil {
		return nil, err
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("%w, so nothing is added to it: %s: %v", ErrProblem, dir, problems[0])
	}
	w := &writer{archive: a, source: src, options: o}
	if err := w.plan(ctx); err != nil || w.manifest == nil {
		return nil, err
	}
	if err := w.copyLogs(ctx); err != nil {
		return nil, err
	}
	if err := w.prove(ctx); err != nil {
		return nil, err
	}
	return w.manifest, w.finish()
}

// writer adds a range to an archive.
type writer struct {
	archive  *Archive
	source   Source
	options  Options
	manifest *Manifest // without files, and with chains as far as they are known
	dir      string    // of the copy, unfinished
}

// plan finds out how far the logs reach. The policies come last: by then their log holds
// every generation that the decisions name.
func (w *writer) plan(ctx context.Context) error {
	a, logs := w.archive, w.archive.Join(w.source.Logs)
	n := w.source.Logs.Events.Partitions()
	if has := a.partitions(); n < has {
		return fmt.Errorf("the archive has %s, these logs have %d: they do not belong together", plural.Of(has, "partition"), n)
	}
	m := &Manifest{Format: formatVersion, Range: len(a.ranges) + 1, Created: w.options.Now.UTC().Truncate(time.Second), Source: w.source.Names, Previous: a.Digest(), Partitions: n}
	for p := range n {
		if w.options.Partitions != nil && !slices.Contains(w.options.Partitions, p) {
			continue
		}
		begin := a.End(p)
		at, _, err := begin.positions()
		if err != nil {
			return err
		}
		end, _, err := follow.Seek(ctx, logs.Decisions, p, at, func(*chain.Accepted) bool { return false }) // to the end
		if errors.Is(err, eventlog.ErrTrimmed) {
			return fmt.Errorf("partition %d: decisions after envelope %d were deleted before they were archived; an archive has no gaps: %w", p, begin.Envelope, err)
		}
		if err != nil {
			return fmt.Errorf("partition %d: %w", p, err)
		}
		if end.Chain.Seq > begin.Envelope {
			m.Chains = append(m.Chains, ChainRange{Partition: p, Begin: begin, End: newBoundary(end, [32]byte{})})
		}
	}
	if len(m.Chains) == 0 {
		return nil
	}
	end, err := w.source.Logs.Policies.End(0)
	if err != nil {
		return fmt.Errorf("find the end of policies: %w", err)
	}
	after := a.policiesEnd()
	if end.Compare(after) < 0 {
		return fmt.Errorf("policies are archived up to %v, but the log ends at %v: they do not belong together", after, end)
	}
	m.Policies = PolicyRange{After: after.String(), To: end.String()}
	w.manifest = m
	return w.begin()
}

// begin prepares the directory of the copy. A copy that was begun for the same range of the
// same topics is continued; any other is removed, because it is not part of the archive yet.
func (w *writer) begin() error {
	w.dir = filepath.Join(w.archive.dir, unfinished+rangeName(w.manifest.Range))
	var partitions []int
	for _, c := range w.manifest.Chains {
		partitions = append(partitions, c.Partition)
	}
	plan, err := json.Marshal(struct {
		Previous   string
		Source     Names
		Count      int
		Partitions []int
	}{w.manifest.Previous, w.source.Names, w.manifest.Partitions, partitions})
	if err != nil {
		return err
	}
	path := filepath.Join(w.dir, planName)
	if had, err := os.ReadFile(path); err == nil && string(had) == string(plan) {
		return nil
	}
	if err := os.RemoveAll(w.dir); err != nil {
		return fmt.Errorf("remove an unfinished copy: %w", err)
	}
	if err := os.Mkdir(w.dir, 0o750); err != nil {
		return fmt.Errorf("create archive: %w", err)
	}
	return os.WriteFile(path, plan, 0o644)
}

const planName = "plan"

func (w *writer) copyLogs(ctx context.Context) error {
	m, logs := w.manifest, w.archive.Join(w.source.Logs)
	var decisions, events []span
	for _, c := range m.Chains {
		decisions = append(decisions, newSpan(c.Partition, c.Begin.Decisions, c.End.Decisions))
		events = append(events, newSpan(c.Partition, c.Begin.Events, c.End.Events))
	}
	for _, l := range []struct {
		dir, name string
		from      eventlog.Topic
		spans     []span
	}{
		{decisionsDir, m.Source.Decisions, logs.Decisions, decisions},
		{policiesDir, m.Source.Policies, logs.Policies, []span{newSpan(0, m.Policies.After, m.Policies.To)}},
		{eventsDir, m.Source.Events, logs.Events, events},
	} {
		n := m.Partitions
		if l.dir == policiesDir {
			n = 1
		}
		c := copier{name: l.name, from: l.from, progress: func(n int) { w.options.Progress(l.dir, n) }}
		if err := c.copyTo(ctx, filepath.Join(w.dir, l.dir), n, l.spans); err != nil {
			return fmt.Errorf("archive %s: %w", l.dir, err)
		}
	}
	return nil
}

// span is a range of one partition of a log, exclusive and inclusive.
type span struct {
	partition int
	after, to eventlog.Position
}

func newSpan(p int, after, to string) span {
	s := span{partition: p}
	s.after, _ = eventlog.ParsePosition(after) // both were formatted by this program
	s.to, _ = eventlog.ParsePosition(to)
	return s
}

// copier copies ranges of a topic.
type copier struct {
	name     string
	from     eventlog.Topic
	progress func(messages int)
	copied   int
}

const copyAtOnce = 256

func (c *copier) copyTo(ctx context.Context, dir string, partitions int, spans []span) (err error) {
	to, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: dir, Partitions: partitions, Codec: filelog.CodecS2})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	for _, s := range spans {
		if err := c.copySpan(ctx, to, s); err != nil {
			return fmt.Errorf("partition %d: %w", s.partition, err)
		}
	}
	return to.Flush(ctx)
}

// copySpan copies a span behind what the copy has of it.
func (c *copier) copySpan(ctx context.Context, to *filelog.Log, s span) (err error) {
	after := s.after
	if end, err := to.End(s.partition); err != nil {
		return err
	} else if end != eventlog.Start {
		last, err := topiccopy.Last(to, s.partition)
		if err != nil {
			return err
		}
		after = last.Origin.Position
		if err := c.mustContain(s.partition, last); err != nil {
			return err
		}
	}
	if after.Compare(s.to) >= 0 {
		return nil
	}
	r, err := openHeld(c.from, s.partition, after)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		chunk := make([]eventlog.Message, copyAtOnce) // the log keeps it until it is written
		n, err := r.Read(chunk)
		if err = errors.Join(err, ctx.Err()); err != nil || n == 0 {
			return err
		}
		keep := 0
		for keep < n && chunk[keep].Position.Compare(s.to) <= 0 {
			chunk[keep] = topiccopy.Wrap(c.name, &chunk[keep])
			keep++
		}
		if err := to.Append(s.partition, chunk[:keep]); err != nil {
			return err
		}
		c.copied += keep
		c.progress(c.copied)
		if keep < n || chunk[keep-1].Origin.Position == s.to {
			return nil
		}
	}
}

// mustContain checks that the topic holds the last message of an unfinished copy, unless it
// was deleted since.
func (c *copier) mustContain(p int, last *eventlog.Message) (err error) {
	before := last.Origin.Position
	before.Batch--
	r, err := c.from.Open(p, before)
	if errors.Is(err, eventlog.ErrTrimmed) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	var m [1]eventlog.Message
	n, err := r.Read(m[:])
	if err == nil && (n == 0 || m[0].Position != last.Origin.Position || !bytes.Equal(m[0].Payload, last.Payload)) {
		err = fmt.Errorf("the unfinished copy has another message at %v than this log: remove its directory", last.Origin.Position)
	}
	return err
}

// openHeld opens a topic at a position, or at the first message that it still holds
// behind it: the proof of the copy finds what is missing.
func openHeld(t eventlog.Topic, p int, after eventlog.Position) (eventlog.Reader, error) {
	r, err := t.Open(p, after)
	if !errors.Is(err, eventlog.ErrTrimmed) {
		return r, err
	}
	r, _, heldErr := eventlog.OpenHeld(t, p)
	if heldErr != nil {
		return nil, errors.Join(err, heldErr)
	}
	return r, nil
}

// prove reads the copy as Verify will, behind the archive that it continues, and
// describes it.
func (w *writer) prove(ctx context.Context) error {
	whole := &Archive{dir: w.archive.dir, ranges: append(slices.Clip(w.archive.ranges), stored{Manifest: w.manifest, dir: w.dir})}
	logs := whole.logs()
	for i := range w.manifest.Chains {
		planned := w.manifest.Chains[i]
		p, to := planned.Partition, planned.End
		w.options.Progress(fmt.Sprintf("the copy of partition %d", p), 0)
		got, err := walk(ctx, logs, p, planned.Begin, to.Envelope, true)
		if isMissing(err) {
			reason := err
			if got, err = walk(ctx, logs, p, planned.Begin, to.Envelope, false); err == nil && !w.options.WithoutEvents {
				return fmt.Errorf("partition %d: %w: %w", p, ErrEventsGone, reason)
			}
			got.EventsMissing = reason.Error()
		}
		if err != nil {
			return fmt.Errorf("partition %d: the copy in %s cannot be read as it should: %w (if this remains, remove that directory)", p, w.dir, err)
		}
		if got.End.Envelope != to.Envelope || got.End.Link != to.Link || got.End.Decisions != to.Decisions {
			return fmt.Errorf("partition %d: the copy in %s ends with envelope %d (%s), the log with %d (%s): remove that directory", p, w.dir, got.End.Envelope, got.End.Link, to.Envelope, to.Link)
		}
		w.manifest.Chains[i] = got
	}
	messages, err := count(ctx, logs.Policies, w.manifest.Policies)
	w.manifest.Policies.Messages = messages
	return err
}

// count counts the messages of a range of policies.
func count(ctx context.Context, policies eventlog.Topic, in PolicyRange) (n uint64, err error) {
	s := newSpan(0, in.After, in.To)
	r, err := policies.Open(0, s.after)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	chunk := make([]eventlog.Message, copyAtOnce)
	for {
		k, err := r.Read(chunk)
		if err = errors.Join(err, ctx.Err()); err != nil || k == 0 {
			return n, err
		}
		for i := range chunk[:k] {
			if chunk[i].Position.Compare(s.to) > 0 {
				return n, nil
			}
			n++
		}
	}
}

// finish makes the copy durable, writes its manifest, and gives it its name.
func (w *writer) finish() error {
	for _, name := range []string{planName, eventsDir + "/LOCK", decisionsDir + "/LOCK", policiesDir + "/LOCK"} {
		if err := os.Remove(filepath.Join(w.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	files, err := list(w.dir)
	if err != nil {
		return err
	}
	w.manifest.Files = files
	b, err := w.manifest.encode()
	if err != nil {
		return err
	}
	if _, err := decodeManifest(b); err != nil {
		return fmt.Errorf("the manifest cannot be read again: %w", err)
	}
	for name, content := range map[string][]byte{manifestName: b, digestName: digestFile(b)} {
		if err := os.WriteFile(filepath.Join(w.dir, name), content, 0o644); err != nil {
			return err
		}
	}
	if err := syncAll(w.dir); err != nil {
		return err
	}
	final := filepath.Join(w.archive.dir, rangeName(w.manifest.Range))
	if _, err := os.Lstat(final); err == nil {
		return fmt.Errorf("%s exists: nothing is overwritten", final)
	}
	if err := os.Rename(w.dir, final); err != nil {
		return err
	}
	return errors.Join(syncOne(w.archive.dir), syncOne(filepath.Dir(w.archive.dir)))
}

// list lists the files of a range, without its manifest, with their digests.
func list(dir string) ([]File, error) {
	var files []File
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		f := File{Path: filepath.ToSlash(rel)}
		if f.Path == manifestName || f.Path == digestName {
			return nil
		}
		f.Size, f.SHA256, err = digestOf(path)
		files = append(files, f)
		return err
	})
	return files, err
}

func digestOf(path string) (size int64, sum string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha256.New()
	size, err = io.Copy(h, f)
	return size, hex.EncodeToString(h.Sum(nil)), err
}

// syncAll syncs everything below a directory, and the directory.
func syncAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return syncOne(path)
	})
}

func syncOne(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

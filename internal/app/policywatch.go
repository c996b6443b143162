package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
)

// PolicySettle is the default of Config.PolicySettle in programs.
const PolicySettle = 5 * time.Second

// Usages of flags that programs share.
const (
	PolicySettleUsage = "how long the policy files must be unchanged before they are read"
	AllowEmptyUsage   = "let the policy files take policies away: all of them, or some that a queue or the settings name"
)

// policyWatch publishes the policy files of a path. It reads them when they have not
// changed for the settle time, so that what is half copied is never in force.
type policyWatch struct {
	path    string
	settle  time.Duration
	accept  bool // also a set that takes policies away (--allow-empty)
	store   *policylog.Store
	log     *slog.Logger
	now     func() time.Time
	refused func(reason string, set *policyfile.Set) // notified of every outcome; "": nothing is refused

	seen      fileList
	polled    bool      // at least once
	changed   bool      // since the first look
	since     time.Time // seen is unchanged since then
	read      bool      // seen was read
	pending   *policyfile.Set
	complaint string
}

// fileList is what shows whether policy files changed: names, and what Stat says.
type fileList struct {
	names []string
	infos []fs.FileInfo
}

// listPolicies looks at a policy file, or at a directory of them and the directory itself.
func listPolicies(path string) (l fileList, err error) {
	add := func(path string) error {
		info, err := os.Stat(path)
		if err == nil {
			l.names, l.infos = append(l.names, path), append(l.infos, info)
		}
		return err
	}
	if err := add(path); err != nil {
		return l, err
	}
	if !l.infos[0].IsDir() {
		if !l.infos[0].Mode().IsRegular() {
			return l, fmt.Errorf("%s is neither a file nor a directory", path)
		}
		return l, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return l, err
	}
	for _, e := range entries {
		if policyfile.IsPolicies(e.Name()) {
			if err := add(filepath.Join(path, e.Name())); err != nil {
				return l, err
			}
		}
	}
	return l, nil
}

func (l fileList) same(other fileList) bool {
	if len(l.names) != len(other.names) {
		return false
	}
	for i, info := range l.infos {
		now := other.infos[i]
		if l.names[i] != other.names[i] || !os.SameFile(info, now) || info.Mode() != now.Mode() {
			return false
		}
		// The directory's own size and time also change with files that are no policies.
		if !info.IsDir() && (info.Size() != now.Size() || !info.ModTime().Equal(now.ModTime())) {
			return false
		}
	}
	return true
}

// newest is when something of it was written last.
func (l fileList) newest() (at time.Time) {
	for _, info := range l.infos {
		if info.ModTime().After(at) {
			at = info.ModTime()
		}
	}
	return at
}

// poll notes what the files are now, and says whether they have settled.
func (w *policyWatch) poll(ctx context.Context) (bool, error) {
	list, err := cancellable(ctx, func() (fileList, error) { return listPolicies(w.path) })
	if err != nil {
		return false, fmt.Errorf("read policies: %w", err)
	}
	now := w.now()
	if !list.same(w.seen) {
		w.changed = w.polled // a copy may keep the times of the files
		w.seen, w.since, w.read = list, now, false
	}
	w.polled = true
	return now.Sub(w.since) >= w.settle || !w.changed && now.Sub(list.newest()) >= w.settle, nil
}

// load reads the files; a nil set without an error: they changed meanwhile.
func (w *policyWatch) load(ctx context.Context) (*policyfile.Set, error) {
	before := w.seen
	set, err := ReadPolicies(ctx, w.path)
	if _, again := w.poll(ctx); again != nil || !w.seen.same(before) {
		return nil, again
	}
	w.read = err == nil || errors.As(err, new(policyfile.Problems))
	return set, err
}

// begin waits until the files have settled, and publishes them.
func (w *policyWatch) begin(ctx context.Context) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for logged := false; ; {
		settled, err := w.poll(ctx)
		if err != nil {
			return err
		}
		if settled {
			set, err := w.load(ctx)
			if err != nil {
				return err
			}
			if set != nil {
				return w.first(ctx, set)
			}
		} else if !logged {
			logged = true
			w.log.Info("waiting until the policy files have settled", slog.String("path", w.path), slog.Duration("settle", w.settle))
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// first publishes the first set. If it is refused, an earlier generation stays in force;
// if there is none, the process does not start.
func (w *policyWatch) first(ctx context.Context, set *policyfile.Set) error {
	w.pending = set
	generation, err := w.publish(ctx)
	if errors.Is(err, errTakesAway) {
		newest, readErr := w.store.Newest(ctx)
		if readErr != nil || newest.Generation() == 0 {
			return errors.Join(fmt.Errorf("policies in %s: %w", w.path, err), readErr)
		}
		return nil
	}
	if err != nil {
		return err
	}
	w.log.Info("policies read", slog.String("from", w.path), slog.Uint64("generation", generation))
	return nil
}

// run publishes a generation whenever the files change, until ctx ends. Files that are
// invalid or refused leave the current generation in force.
func (w *policyWatch) run(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := w.step(ctx); err != nil && ctx.Err() == nil {
			w.warn("policy files cannot be used; the current generation stays in force", err)
			reason := "unreadable"
			if errors.As(err, new(policyfile.Problems)) {
				reason = "invalid"
			}
			w.refused(reason, nil)
		}
	}
}

func (w *policyWatch) step(ctx context.Context) error {
	settled, err := w.poll(ctx)
	if err != nil {
		w.read, w.pending = false, nil
		return err
	}
	if !w.read {
		if !settled {
			return nil
		}
		if w.pending, err = w.load(ctx); err != nil || w.pending == nil {
			return err
		}
	}
	if w.pending == nil {
		return nil
	}
	generation, err := w.publish(ctx)
	switch {
	case errors.Is(err, errTakesAway), ctx.Err() != nil:
	case err != nil:
		w.warn("policies not published; retrying", err)
	default:
		w.complaint = ""
		w.log.Info("policies of the files are in force", slog.Uint64("generation", generation))
	}
	return nil
}

// publish publishes the pending set; it stays pending while it is refused.
func (w *policyWatch) publish(ctx context.Context) (uint64, error) {
	generation, err := PublishPolicies(ctx, w.store, w.pending, "files of "+w.path, w.accept)
	switch {
	case errors.Is(err, errTakesAway):
		w.warn("policy files are refused; the current generation stays in force", err)
		w.refused("takes_away", w.pending)
	case err == nil:
		w.pending = nil
		w.refused("", nil)
	}
	return generation, err
}

// warn logs an error once, until another comes.
func (w *policyWatch) warn(message string, err error) {
	if err.Error() != w.complaint {
		w.complaint = err.Error()
		w.log.Warn(message, slog.Any("error", err)) //nolint:sloglint // one of the constants of the callers
	}
}

// cancellable calls f, and returns early when ctx ends: a file operation may hang for
// ever, on a named pipe or a network file system.
func cancellable[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

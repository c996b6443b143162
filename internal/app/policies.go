package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
)

// ReadPolicies reads policy files, and the policy files of directories, as one policy set. Its error is a
// policy.Problems if the files are invalid.
func ReadPolicies(ctx context.Context, paths ...string) (*policyfile.Set, error) {
	files, err := PolicyFiles(ctx, paths...)
	if err != nil {
		return nil, err
	}
	return policyfile.Parse(files)
}

// PolicyFiles reads policy files, and the policy files of directories, until ctx ends.
func PolicyFiles(ctx context.Context, paths ...string) ([]policyfile.File, error) {
	return cancellable(ctx, func() ([]policyfile.File, error) { return policyFiles(paths...) })
}

func policyFiles(paths ...string) ([]policyfile.File, error) {
	var all []policyfile.File
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("read policies: %w", err)
		}
		dir, names := path, []string(nil)
		if !info.IsDir() {
			dir, names = filepath.Dir(path), []string{filepath.Base(path)}
		}
		load := policyfile.LoadDir
		if names != nil {
			load = func(fsys fs.FS) ([]policyfile.File, error) { return policyfile.LoadFiles(fsys, names...) }
		}
		files, err := load(os.DirFS(dir))
		if err != nil {
			return nil, fmt.Errorf("read policies in %s: %w", dir, err)
		}
		for i := range files {
			files[i].Name = filepath.Join(dir, files[i].Name)
		}
		all = append(all, files...)
	}
	return all, nil
}

// HasPolicies reports whether the data directory has a policies log.
func (d Dir) HasPolicies() bool { return filelog.Exists(vfs.Default, d.Policies()) }

// ReadPolicyLog calls use with a service that reads the policies log of a data directory, and changes nothing.
func (d Dir) ReadPolicyLog(now func() time.Time, use func(*api.Service) error) error {
	log, err := openLog(d.Policies(), 0, false)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	readOnly := func(context.Context, []byte) error { return errors.New("the policies log is open for reading") }
	store, err := policylog.OpenStore(log, readOnly, now)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	return use(&api.Service{Store: store, Now: now})
}

// errTakesAway reports a set that would leave queues without the policies that they need.
var errTakesAway = errors.New("the files take policies away")

// PublishPolicies publishes a policy set as the newest generation, unless it already is; overrides stay as they
// are. It returns the generation that now holds the set. Unless accept is set, it refuses a set that has no policy,
// or lacks one that a queue or the settings name, if the current generation does not.
func PublishPolicies(ctx context.Context, store *policylog.Store, set *policyfile.Set, reason string, accept bool) (uint64, error) {
	author, _ := os.Hostname()
	v, err := store.Do(ctx, policylog.Edit{
		Author: author, Reason: reason,
		Make: func(s policylog.Snapshot) (*policyfile.Set, []policylog.Override, error) {
			if !accept && set.Digest() != s.Base.Digest() {
				if err := takesAway(s.Base, set); err != nil {
					return nil, nil, err
				}
			}
			return set, s.ActiveOverrides(), nil
		},
	})
	if err != nil {
		return 0, fmt.Errorf("publish policies: %w", err)
	}
	return v.Number, nil
}

// takesAway says what a set lacks that the set before it has.
func takesAway(before, set *policyfile.Set) error {
	const advice = "complete the files, or confirm with `refloatctl apply -f DIR --prune --allow-empty`, or start with --allow-empty"
	if before.HasPolicies() && !set.HasPolicies() {
		return fmt.Errorf("%w: no policy is left, and every failed run would fail (NoPolicy): %s", errTakesAway, advice)
	}
	for _, id := range set.Resources() {
		had := before.Missing(id)
		for _, name := range set.Missing(id) {
			if !slices.Contains(had, name) {
				return fmt.Errorf("%w: %s names policy %s, which is not there: %s", errTakesAway, id, name, advice)
			}
		}
	}
	return nil
}

// filesRefused notes whether policy files are refused, and why; with a set if an apply may confirm it.
func (n *node) filesRefused(reason string, set *policyfile.Set) {
	n.waiting.Store(set)
	n.metrics.filesRefused.Reset()
	if reason != "" {
		n.metrics.filesRefused.WithLabelValues(reason).Set(1)
	}
	if before := n.whyRefused; reason != before && reason != "" {
		n.sender.Notify(event("policies.refused", n.Now().UnixNano(), fmt.Sprintf("the policy files of %s are refused (%s), and what was in force stays; the log of %s says what is wrong", n.Policies, reason, n.name()),
			map[string]any{"files": n.Policies, "cause": reason, "instance": n.name()}, n.name()))
	}
	n.whyRefused = reason
}

// warnWithoutPolicies warns once if no policy is in force at the start.
func (n *node) warnWithoutPolicies(ctx context.Context) error {
	log := n.policyLog.Follow()
	defer log.Close()
	for {
		ended, err := log.AtEnd()
		if err != nil {
			return nil //nolint:nilerr // whoever needs the policies retries, and says so
		}
		if ended {
			break
		}
		select {
		case <-log.Changed():
		case <-ctx.Done():
			return nil
		}
	}
	if _, set := log.Newest(); !set.HasPolicies() {
		n.Log.Warn("no policy is in force: every failed run fails (NoPolicy); give --policies PATH, or use `refloatctl apply`")
	}
	return nil
}

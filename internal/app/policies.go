package app

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policy/policylog"
)

// ReadPolicies reads policy files, and the policy files of directories, as one policy set. Its error is a
// policy.Problems if the files are invalid.
func ReadPolicies(paths ...string) (*policyfile.Set, error) {
	files, err := PolicyFiles(paths...)
	if err != nil {
		return nil, err
	}
	return policyfile.Parse(files)
}

// PolicyFiles reads policy files, and the policy files of directories.
func PolicyFiles(paths ...string) ([]policyfile.File, error) {
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

// OpenPolicyStore opens the store that changes a backend's policies.
func OpenPolicyStore(b *Backend, now func() time.Time) (*policylog.Store, error) {
	return policylog.OpenStore(b.Policies, b.AppendPolicies, now)
}

// PublishPolicies publishes a policy set as the newest generation, unless it already is; overrides stay as they
// are. It returns the generation that now holds the set.
func PublishPolicies(ctx context.Context, store *policylog.Store, set *policyfile.Set, reason string) (uint64, error) {
	author, _ := os.Hostname()
	v, err := store.Do(ctx, policylog.Edit{
		Author: author, Reason: reason,
		Make: func(s policylog.Snapshot) (*policyfile.Set, []policylog.Brake, error) { return set, s.BrakesOn(), nil },
	})
	if err != nil {
		return 0, fmt.Errorf("publish policies: %w", err)
	}
	return v.Number, nil
}

// WatchPolicies publishes a generation whenever the files of a directory change, until ctx ends. If files are
// invalid, the current generation stays in force; publishing is retried after any error.
func WatchPolicies(ctx context.Context, store *policylog.Store, dir string, logger *slog.Logger) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	var complaint string
	isNews := func(err error) bool {
		news := err.Error() != complaint
		complaint = err.Error()
		return news
	}
	var current [32]byte // digest of the last published set
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		set, err := ReadPolicies(dir)
		if err != nil {
			if isNews(err) {
				logger.Warn("policy files are invalid; the current generation stays in force", slog.Any("error", err))
			}
			continue
		}
		if set.Digest() == current {
			complaint = ""
			continue
		}
		generation, err := PublishPolicies(ctx, store, set, "files of "+dir)
		switch {
		case err == nil:
			if current != [32]byte{} {
				logger.Info("policy generation published", slog.Uint64("generation", generation))
			}
			complaint, current = "", set.Digest()
		case ctx.Err() != nil:
			return nil
		default:
			if isNews(err) {
				logger.Warn("policies not published; retrying", slog.Any("error", err))
			}
		}
	}
}

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
)

// ReadPolicies reads policy files, and the policy files of directories, as one
// policy set. Its error is a policy.Problems where the files are at fault.
func ReadPolicies(paths ...string) (*policy.Set, error) {
	files, err := PolicyFiles(paths...)
	if err != nil {
		return nil, err
	}
	return policy.Parse(files)
}

// PolicyFiles reads policy files, and the policy files of directories.
func PolicyFiles(paths ...string) ([]policy.File, error) {
	var all []policy.File
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("read policies: %w", err)
		}
		dir, names := path, []string(nil)
		if !info.IsDir() {
			dir, names = filepath.Dir(path), []string{filepath.Base(path)}
		}
		load := policy.LoadDir
		if names != nil {
			load = func(fsys fs.FS) ([]policy.File, error) { return policy.LoadFiles(fsys, names...) }
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

// PublishPolicies appends a policy set to the policies log, unless the newest
// generation there is equal. It returns the generation that now holds it.
func PublishPolicies(ctx context.Context, b *Backend, set *policy.Set, reason string, now time.Time) (uint64, error) {
	held, err := evaluator.OpenPolicies(eventlog.ToEnd(b.Policies))
	if err != nil {
		return 0, err
	}
	generation, err := publishPolicies(ctx, b, held, set, reason, now)
	return generation, errors.Join(err, held.Close())
}

func publishPolicies(ctx context.Context, b *Backend, held *evaluator.Policies, set *policy.Set, reason string, now time.Time) (uint64, error) {
	if err := held.Refresh(); err != nil {
		return 0, err
	}
	newest := held.Newest()
	if newest.Set.Digest() == set.Digest() {
		return newest.Generation, nil
	}
	author, _ := os.Hostname()
	payload, err := evaluator.EncodeGeneration(set, author, reason, now.UnixNano())
	if err != nil {
		return 0, err
	}
	if err := b.AppendPolicies(ctx, payload); err != nil {
		return 0, fmt.Errorf("publish policies: %w", err)
	}
	if err := held.Refresh(); err != nil {
		return 0, err
	}
	return held.Newest().Generation, nil
}

// WatchPolicies publishes a generation whenever the files of a directory
// change, until ctx ends. Files that cannot be read leave in force what is; a log
// that is out of reach is tried again.
func WatchPolicies(ctx context.Context, b *Backend, dir string, now func() time.Time, logger *slog.Logger) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	var held *evaluator.Policies
	defer func() {
		if held != nil {
			_ = held.Close()
		}
	}()
	var complaint string
	isNews := func(err error) bool {
		news := err.Error() != complaint
		complaint = err.Error()
		return news
	}
	var current [32]byte // digest of what was published last
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		set, err := ReadPolicies(dir)
		if err != nil {
			if isNews(err) {
				logger.Warn("policy files cannot be used; what is in force stays", slog.Any("error", err))
			}
			continue
		}
		if set.Digest() == current {
			complaint = ""
			continue
		}
		if held == nil {
			if held, err = evaluator.OpenPolicies(eventlog.ToEnd(b.Policies)); err != nil {
				held = nil
			}
		}
		var generation uint64
		if err == nil {
			generation, err = publishPolicies(ctx, b, held, set, "files of "+dir, now())
		}
		switch {
		case err == nil:
			if current != [32]byte{} {
				logger.Info("policy generation published", slog.Uint64("generation", generation))
			}
			complaint, current = "", set.Digest()
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, eventlog.ErrTransient):
			return err
		default:
			if isNews(err) {
				logger.Warn("policies cannot be published now", slog.Any("error", err))
			}
			if held != nil {
				_ = held.Close()
				held = nil
			}
		}
	}
}

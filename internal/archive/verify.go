package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/eventlog"
)

// Report is what Verify found.
type Report struct {
	Ranges   int
	Files    int   // whose digest is right
	Bytes    int64 // in them
	Problems []Problem
	Chains   []Chain // by partition; empty if files have problems
	// Digest is the SHA-256 of the last manifest.
	Digest string
	// Unfinished names directories of copies that were begun and not completed. They are not part
	// of the archive.
	Unfinished []string
}

// Chain is what Verify found out about the archive of a partition.
type Chain struct {
	Partition int    `json:"partition"`
	Ranges    int    `json:"ranges"`
	Envelopes uint64 `json:"envelopes"`
	Events    uint64 `json:"events"`
	Decisions uint64 `json:"decisions"`
	// Derived is the number of covered messages whose records were derived again and
	// equal the archived ones in every byte.
	Derived uint64 `json:"eventsDecidedAgain"`
	// NotDerived says why the records of the other messages could not be derived.
	NotDerived string   `json:"whyNotAll,omitempty"`
	End        Boundary `json:"end"` // the whole archive, from the first envelope, ends here
}

// Whole reports whether everything was verified.
func (r *Report) Whole() bool {
	return len(r.Problems) == 0 && !slices.ContainsFunc(r.Chains, func(c Chain) bool { return c.NotDerived != "" })
}

// Verify checks an archive by itself: the digest of every file, the chain from its first
// envelope to its last one, and every decision, by deriving it again. The chain is checked
// only if all files are right.
func Verify(ctx context.Context, dir string, progress func(what string)) (*Report, error) {
	a, problems, err := load(dir)
	if err != nil {
		return nil, err
	}
	r := &Report{Ranges: len(a.ranges), Problems: problems, Digest: a.Digest()}
	if r.Unfinished, err = filepath.Glob(filepath.Join(dir, unfinished+"*")); err != nil {
		return nil, err
	}
	if len(a.ranges) == 0 && len(problems) == 0 {
		return nil, fmt.Errorf("%s is no archive: it has no range %s", dir, rangeName(1))
	}
	for i := range a.ranges {
		progress("range " + rangeName(a.ranges[i].Range))
		if err := r.files(ctx, &a.ranges[i]); err != nil {
			return nil, err
		}
	}
	if len(r.Problems) > 0 {
		return r, nil
	}
	for p := range a.partitions() {
		progress(fmt.Sprintf("partition %d", p))
		if a.End(p).Envelope == 0 {
			continue
		}
		c, err := r.chain(ctx, a, p)
		if err != nil {
			return nil, fmt.Errorf("partition %d: %w", p, err)
		}
		r.Chains = append(r.Chains, c)
	}
	return r, r.policies(ctx, a)
}

// files compares the files of a range with its manifest.
func (r *Report) files(ctx context.Context, s *stored) error {
	wrong := func(path, format string, args ...any) {
		r.Problems = append(r.Problems, Problem{s.Range, rangeName(s.Range) + "/" + path, fmt.Sprintf(format, args...)})
	}
	named := map[string]bool{manifestName: true, digestName: true}
	for _, f := range s.Files {
		if err := ctx.Err(); err != nil {
			return err
		}
		named[f.Path] = true
		if !filepath.IsLocal(filepath.FromSlash(f.Path)) {
			wrong(f.Path, "the manifest names a file outside of its range")
			continue
		}
		size, sum, err := digestOf(filepath.Join(s.dir, filepath.FromSlash(f.Path)))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			wrong(f.Path, "is missing")
		case err != nil:
			wrong(f.Path, "cannot be read: %v", err)
		case size != f.Size:
			wrong(f.Path, "it has %d bytes, the manifest says %d", size, f.Size)
		case sum != f.SHA256:
			wrong(f.Path, "its SHA-256 is %s, the manifest says %s", sum, f.SHA256)
		default:
			r.Files, r.Bytes = r.Files+1, r.Bytes+size
		}
	}
	return filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(s.dir, path)
		if err = errors.Join(err, relErr); err != nil {
			return err
		}
		if rel = filepath.ToSlash(rel); !d.IsDir() && !named[rel] {
			wrong(rel, "the manifest does not name it")
		}
		return nil
	})
}

// chain follows the archived chain of a partition, compares it with the manifests, and
// derives its decisions again.
func (r *Report) chain(ctx context.Context, a *Archive, p int) (Chain, error) {
	c, logs := Chain{Partition: p, End: a.End(p)}, a.logs()
	for _, s := range a.ranges {
		for _, want := range s.Chains {
			if want.Partition != p {
				continue
			}
			c.Ranges++
			wrong := func(format string, args ...any) {
				r.Problems = append(r.Problems, Problem{s.Range, fmt.Sprintf("%s/%s", rangeName(s.Range), decisionsDir), fmt.Sprintf("partition %d: ", p) + fmt.Sprintf(format, args...)})
			}
			got, err := walk(ctx, logs, p, want.Begin, want.End.Envelope, want.EventsMissing == "")
			if err != nil && ctx.Err() != nil {
				return c, err
			}
			if err != nil {
				wrong("the chain is not whole: %v", err)
				continue
			}
			got.EventsMissing = want.EventsMissing
			if diff := differences(want, got); diff != "" {
				wrong("the manifest does not describe it: %s", diff)
			}
			c.Envelopes, c.Events, c.Decisions = c.Envelopes+got.Envelopes, c.Events+got.Events, c.Decisions+got.Decisions
		}
	}
	if len(r.Problems) > 0 {
		c.NotDerived = "there are problems"
		return c, nil
	}
	v, err := audit.Verify(ctx, logs, p)
	switch {
	case err != nil && ctx.Err() != nil:
		return c, err
	case isMissing(err):
		c.Derived, c.NotDerived = v.Messages-v.Unknown, err.Error()
		return c, nil
	case err != nil:
		c.NotDerived = err.Error()
		r.Problems = append(r.Problems, Problem{What: fmt.Sprintf("partition %d: %v", p, err)})
		return c, nil
	}
	c.Derived = c.Events - v.Unknown
	if v.Unknown > 0 {
		c.NotDerived = fmt.Sprintf("the state was lost; %s acknowledged that the events up to %v are unknown", v.RebuiltBy, v.RebuiltFrom)
	}
	got := c.End
	got.Envelope, got.Link, got.Running = v.End.Seq, v.End.Link.String(), v.Progress.Running.String()
	got.Decided, got.Semantics, got.Generation = v.Progress.Decisions, v.Progress.Semantics, v.Progress.Generation
	if diff := differences(c.End, got); diff != "" {
		r.Problems = append(r.Problems, Problem{What: fmt.Sprintf("partition %d: deriving it again ends elsewhere: %s", p, diff)})
	}
	return c, nil
}

// policies counts the archived policies.
func (r *Report) policies(ctx context.Context, a *Archive) error {
	policies := a.logs().Policies
	for _, s := range a.ranges {
		n, err := count(ctx, policies, s.Policies)
		if err != nil && (ctx.Err() != nil || !errors.Is(err, eventlog.ErrCorrupt)) {
			return err
		}
		if err != nil || n != s.Policies.Messages {
			r.Problems = append(r.Problems, Problem{s.Range, rangeName(s.Range) + "/" + policiesDir, fmt.Sprintf("it holds %d messages (%v), the manifest says %d", n, err, s.Policies.Messages)})
		}
	}
	return nil
}

// differences names the fields in which two descriptions differ, as JSON.
func differences(want, got any) string {
	a, e1 := json.Marshal(want)
	b, e2 := json.Marshal(got)
	if e1 == nil && e2 == nil && string(a) == string(b) {
		return ""
	}
	return fmt.Sprintf("it says %s, but found %s", a, b)
}

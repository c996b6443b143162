package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/refloat/refloat/internal/eventlog"
)

// ErrProblem reports that an archive is damaged, or is none.
var ErrProblem = errors.New("archive has a problem")

// Problem is something that is wrong with an archive.
type Problem struct {
	Range int    `json:"range,omitempty"` // 0: none in particular
	File  string `json:"file,omitempty"`  // path in the archive
	What  string `json:"what"`
}

// String formats a problem as one line.
func (p Problem) String() string {
	switch {
	case p.File != "":
		return p.File + ": " + p.What
	case p.Range != 0:
		return rangeName(p.Range) + ": " + p.What
	}
	return p.What
}

// Archive is an archive that was opened for reading.
type Archive struct {
	dir    string
	ranges []stored
}

// stored is a range with its directory and the digest of its manifest.
type stored struct {
	*Manifest
	dir    string
	digest string
}

const unfinished = "unfinished-"

func rangeName(n int) string { return fmt.Sprintf("%06d", n) }

// Open reads the manifests of an archive. It does not read the other files: Verify does.
func Open(dir string) (*Archive, error) {
	a, problems, err := load(dir)
	if err != nil {
		return nil, err
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("%w: %s: %v (`refloatctl archive verify` lists all)", ErrProblem, dir, problems[0])
	}
	if len(a.ranges) == 0 {
		return nil, fmt.Errorf("%s is no archive: it has no range %s", dir, rangeName(1))
	}
	return a, nil
}

// load reads all manifests that it can, and what is wrong with them.
func load(dir string) (*Archive, []Problem, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("open archive: %w", err)
	}
	a := &Archive{dir: dir}
	var problems []Problem
	last, previous := 0, ""
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		switch {
		case strings.HasPrefix(e.Name(), unfinished):
			continue
		case err != nil || n < 1 || e.Name() != rangeName(n) || !e.IsDir():
			problems = append(problems, Problem{File: e.Name(), What: "does not belong to an archive"})
			continue
		}
		for last++; last < n; last++ {
			problems = append(problems, Problem{Range: last, What: "is missing"})
			previous = ""
		}
		s, found, err := loadRange(dir, n)
		if err != nil {
			return nil, nil, err
		}
		problems = append(problems, found...)
		if s == nil {
			previous = ""
			continue
		}
		if (n == 1 || previous != "") && s.Previous != previous {
			problems = append(problems, Problem{n, rangeName(n) + "/" + manifestName, fmt.Sprintf("it follows the manifest with SHA-256 %s, but that of the range before is %s", orNone(s.Previous), orNone(previous))})
		}
		previous = s.digest
		a.ranges = append(a.ranges, *s)
	}
	if len(problems) == 0 {
		problems = a.gaps()
	}
	return a, problems, nil
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// loadRange reads the manifest of a range; nil: there is a problem with it.
func loadRange(dir string, n int) (*stored, []Problem, error) {
	name := rangeName(n)
	wrong := func(file, format string, args ...any) []Problem {
		return []Problem{{n, name + "/" + file, fmt.Sprintf(format, args...)}}
	}
	b, err := os.ReadFile(filepath.Join(dir, name, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, wrong(manifestName, "is missing"), nil
	} else if err != nil {
		return nil, nil, fmt.Errorf("open archive: %w", err)
	}
	sum, err := os.ReadFile(filepath.Join(dir, name, digestName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, wrong(digestName, "is missing"), nil
	case err != nil:
		return nil, nil, fmt.Errorf("open archive: %w", err)
	case string(sum) != string(digestFile(b)):
		return nil, wrong(manifestName, "its SHA-256 is %s, %s says %.64q", digest(b), digestName, sum), nil
	}
	m, err := decodeManifest(b)
	if err != nil {
		return nil, wrong(manifestName, "%v", err), nil
	}
	if m.Range != n {
		return nil, wrong(manifestName, "it is that of range %d", m.Range), nil
	}
	return &stored{Manifest: m, dir: filepath.Join(dir, name), digest: digest(b)}, nil, nil
}

// gaps checks that each range begins where the one before it ended.
func (a *Archive) gaps() (problems []Problem) {
	ends, policies := map[int]Boundary{}, eventlog.Start.String()
	for _, r := range a.ranges {
		wrong := func(format string, args ...any) {
			problems = append(problems, Problem{r.Range, rangeName(r.Range) + "/" + manifestName, fmt.Sprintf(format, args...)})
		}
		for _, c := range r.Chains {
			before, ok := ends[c.Partition]
			if !ok {
				before = beginning()
			}
			if c.Begin != before {
				wrong("partition %d: it begins after envelope %d (link %s), but the range before ended with envelope %d (link %s)",
					c.Partition, c.Begin.Envelope, c.Begin.Link, before.Envelope, before.Link)
			}
			ends[c.Partition] = c.End
		}
		if r.Policies.After != policies {
			wrong("policies: it begins after %s, but the range before ended at %s", r.Policies.After, policies)
		}
		policies = r.Policies.To
	}
	return problems
}

// Manifests returns the manifests in order.
func (a *Archive) Manifests() []*Manifest {
	all := make([]*Manifest, len(a.ranges))
	for i, r := range a.ranges {
		all[i] = r.Manifest
	}
	return all
}

// Digest returns the SHA-256 of the last manifest, which stands for the whole archive.
func (a *Archive) Digest() string {
	if len(a.ranges) == 0 {
		return ""
	}
	return a.ranges[len(a.ranges)-1].digest
}

// End returns where the archive of a partition ends; Envelope 0: it has none.
func (a *Archive) End(p int) Boundary {
	for _, r := range slices.Backward(a.ranges) {
		for _, c := range r.Chains {
			if c.Partition == p {
				return c.End
			}
		}
	}
	return beginning()
}

// policiesEnd returns the position up to which policies are archived.
func (a *Archive) policiesEnd() eventlog.Position {
	if len(a.ranges) == 0 {
		return eventlog.Start
	}
	at, _ := eventlog.ParsePosition(a.ranges[len(a.ranges)-1].Policies.To) // decodeManifest checked it
	return at
}

// partitions returns the number of partitions of the source, as far as the archive knows.
func (a *Archive) partitions() int {
	n := 0
	for _, r := range a.ranges {
		n = max(n, r.Partitions)
	}
	return n
}

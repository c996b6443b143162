package archive_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/archive"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
)

func copyOf(t testing.TB, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	must(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mustName fails the test unless a problem names the file.
func mustName(t *testing.T, dir, file, what string) {
	t.Helper()
	r := verify(t, dir)
	for _, p := range r.Problems {
		if strings.HasPrefix(p.String(), file) {
			return
		}
	}
	t.Errorf("%s %s: no problem names it: %v", file, what, r.Problems)
}

// TestDamage: a changed byte, a missing file, a truncated one, one that does not belong and one in
// the place of another are found and named, whatever the file.
func TestDamage(t *testing.T) {
	t.Parallel()
	_, whole := grown(t)
	dir := copyOf(t, whole)
	files := filesOf(t, dir)
	if len(files) < 30 {
		t.Fatalf("only %d files: %v", len(files), files)
	}
	kinds := map[string]bool{}
	for _, file := range files {
		kinds[filepath.Base(file)] = true
		path := filepath.Join(dir, file)
		good, err := os.ReadFile(path)
		must(t, err)
		// A manifest's digest proves the manifest, and the other way round.
		named := strings.TrimSuffix(filepath.ToSlash(file), ".sha256")
		try := func(what string, content []byte) {
			t.Helper()
			must(t, os.WriteFile(path, content, 0o644))
			mustName(t, dir, named, what)
		}
		for _, at := range []int{0, len(good) / 2, len(good) - 1} {
			bad := bytes.Clone(good)
			bad[at] ^= 1
			try(fmt.Sprintf("with a flip at %d", at), bad)
		}
		try("empty", nil)
		try("without its last byte", good[:len(good)-1])
		try("with one more byte", append(bytes.Clone(good), '\n'))
		must(t, os.Remove(path))
		mustName(t, dir, named, "missing")
		must(t, os.WriteFile(path, good, 0o644))
	}
	for _, kind := range []string{"manifest.json", "manifest.json.sha256", "META", "SYNCED", "00000000000000000000.seg"} {
		if !kinds[kind] {
			t.Errorf("no %s was damaged", kind)
		}
	}
	for _, extra := range []string{"000001/notes", "000002/events/0000/00000000000000000099.seg", "000003x", "notes"} {
		path := filepath.Join(dir, extra)
		must(t, os.WriteFile(path, nil, 0o644))
		mustName(t, dir, extra, "is superfluous")
		must(t, os.Remove(path))
	}
	mustBeWhole(t, dir)
}

// TestSwapped: files and ranges in each other's place are found.
func TestSwapped(t *testing.T) {
	t.Parallel()
	_, whole := grown(t)
	const segment = "00000000000000000000.seg"
	for _, pair := range [][2]string{
		{"000001/decisions/0000/" + segment, "000001/decisions/0001/" + segment},
		{"000001/decisions/0001/" + segment, "000002/decisions/0001/" + segment},
		{"000001/events/0001/" + segment, "000002/events/0001/" + segment},
		{"000001/events", "000002/events"},
		{"000001/manifest.json", "000002/manifest.json"},
		{"000001", "000002"},
	} {
		dir := copyOf(t, whole)
		a, b, c := filepath.Join(dir, pair[0]), filepath.Join(dir, pair[1]), filepath.Join(dir, "000001x")
		must(t, os.Rename(a, c))
		must(t, os.Rename(b, a))
		must(t, os.Rename(c, b))
		mustName(t, dir, pair[0], "swapped")
		mustName(t, dir, pair[1], "swapped")
	}
	dir := copyOf(t, whole)
	must(t, os.RemoveAll(filepath.Join(dir, "000001")))
	mustName(t, dir, "000001: is missing", "")
	if _, err := archive.Open(dir); !errors.Is(err, archive.ErrProblem) {
		t.Errorf("Open without the first range: %v", err)
	}
}

// forge changes a range as somebody would who knows the format: files have the digests that
// manifests name, and manifests that of the one before.
func forge(t *testing.T, dir, name string, change func(*archive.Manifest)) {
	t.Helper()
	sum := forgeRange(t, dir, name, change)
	if name == "000001" {
		forgeRange(t, dir, "000002", func(m *archive.Manifest) { m.Previous = sum })
	}
}

func forgeRange(t *testing.T, dir, name string, change func(*archive.Manifest)) (digest string) {
	t.Helper()
	path := filepath.Join(dir, name, "manifest.json")
	b, err := os.ReadFile(path)
	must(t, err)
	m := &archive.Manifest{}
	must(t, json.Unmarshal(b, m))
	change(m)
	for i := range m.Files {
		f := &m.Files[i]
		content, err := os.ReadFile(filepath.Join(dir, name, f.Path))
		must(t, err)
		sum := sha256.Sum256(content)
		f.Size, f.SHA256 = int64(len(content)), hex.EncodeToString(sum[:])
	}
	b, err = json.MarshalIndent(m, "", "  ")
	must(t, err)
	b = append(b, '\n')
	sum := sha256.Sum256(b)
	must(t, os.WriteFile(path, b, 0o644))
	must(t, os.WriteFile(path+".sha256", []byte(hex.EncodeToString(sum[:])+"  manifest.json\n"), 0o644))
	return hex.EncodeToString(sum[:])
}

// rewrite writes a copied log again, with a partition's messages changed.
func rewrite(t *testing.T, dir string, p int, change func([]eventlog.Message) []eventlog.Message) {
	t.Helper()
	old, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: dir, ReadOnly: true, Manual: true})
	must(t, err)
	var all [][]eventlog.Message
	for i := range old.Partitions() {
		all = append(all, readAll(t, old, i, eventlog.Start))
	}
	must(t, old.Close())
	must(t, os.RemoveAll(dir))
	all[p] = change(all[p])
	log, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: dir, Partitions: len(all), Codec: filelog.CodecS2})
	must(t, err)
	for i := range all {
		if len(all[i]) > 0 {
			must(t, log.AppendSync(t.Context(), i, all[i]))
		}
	}
	must(t, log.Close())
	must(t, os.Remove(filepath.Join(dir, "LOCK")))
}

// TestForged: what was changed with all digests is found by the chain and by deriving it again.
func TestForged(t *testing.T) {
	t.Parallel()
	_, whole := grown(t)
	digest := mustReopen(t, whole).Digest()
	keep := func(*archive.Manifest) {}
	for name, tt := range map[string]struct {
		do   func(dir string)
		want string
	}{
		"a bit of a decision": {func(dir string) {
			rewrite(t, filepath.Join(dir, "000002/decisions"), 1, func(m []eventlog.Message) []eventlog.Message {
				m[len(m)-1].Payload = bytes.Clone(m[len(m)-1].Payload)
				m[len(m)-1].Payload[len(m[len(m)-1].Payload)/2] ^= 1
				return m
			})
			forge(t, dir, "000002", keep)
		}, "partition 1: the chain is not whole"},
		"an envelope left out": {func(dir string) {
			rewrite(t, filepath.Join(dir, "000002/decisions"), 1, func(m []eventlog.Message) []eventlog.Message { return m[1:] })
			forge(t, dir, "000002", keep)
		}, "partition 1: the chain is not whole"},
		"an event left out": {func(dir string) {
			rewrite(t, filepath.Join(dir, "000001/events"), 2, func(m []eventlog.Message) []eventlog.Message { return m[1:] })
			forge(t, dir, "000001", keep)
		}, "partition 2: the chain is not whole"},
		"the content of events": {func(dir string) {
			rewrite(t, filepath.Join(dir, "000001/events"), 2, func(m []eventlog.Message) []eventlog.Message {
				for i := range m {
					m[i].Payload = nil
				}
				return m
			})
			forge(t, dir, "000001", keep)
		}, "partition 2: decision log differs from its input"},
		"a policy": {func(dir string) {
			rewrite(t, filepath.Join(dir, "000001/policies"), 0, func(m []eventlog.Message) []eventlog.Message {
				m[0].Payload = append(bytes.Clone(m[0].Payload), 0)
				return m
			})
			forge(t, dir, "000001", keep)
		}, "partition 0: "},
		"a claim about the number of decisions": {func(dir string) {
			forge(t, dir, "000002", func(m *archive.Manifest) { m.Chains[0].Decisions++ })
		}, "partition 0: the manifest does not describe it"},
		"a claim about the running hash": {func(dir string) {
			forge(t, dir, "000002", func(m *archive.Manifest) { // of the last partition with something new
				m.Chains[len(m.Chains)-1].End.Running = strings.Repeat("ab", 32)
			})
		}, ": the manifest does not describe it"},
		"a claim about policies": {func(dir string) {
			forge(t, dir, "000001", func(m *archive.Manifest) { m.Policies.Messages++ })
		}, "the manifest says 2"},
		"a range before": {func(dir string) {
			forgeRange(t, dir, "000001", func(m *archive.Manifest) { m.Source.Events = "x/y" })
		}, "it follows the manifest"},
		"a path out of the archive": {func(dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "plan"), nil, 0o644))
			forge(t, dir, "000002", func(m *archive.Manifest) { m.Files = append(m.Files, archive.File{Path: "../plan"}) })
		}, "outside of its range"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyOf(t, whole)
			tt.do(dir)
			r := verify(t, dir)
			if r.Whole() || !strings.Contains(fmt.Sprint(r.Problems), tt.want) {
				t.Errorf("problems %v, want %q", r.Problems, tt.want)
			}
			if r.Digest == digest && name != "a range before" {
				t.Error("the digest of the archive is the same")
			}
		})
	}
}

// trimmed is a topic whose messages up to a position were deleted in one partition.
type trimmed struct {
	eventlog.Topic
	partition int
	upTo      eventlog.Position
	exact     bool // whether it still knows that nothing is missing after that position
}

func (x trimmed) Open(p int, after eventlog.Position) (eventlog.Reader, error) {
	if c := after.Compare(x.upTo); p == x.partition && (c < 0 || c == 0 && !x.exact && after != eventlog.Start) {
		if after != x.begin() {
			return nil, fmt.Errorf("open after %v: %w", after, eventlog.ErrTrimmed)
		}
	}
	if p == x.partition && after == x.begin() {
		after = x.upTo
	}
	return x.Topic.Open(p, after)
}

// begin is the position just before the first message held, as a broker names it.
func (x trimmed) begin() eventlog.Position {
	if x.exact {
		return x.upTo
	}
	return eventlog.Position{Ledger: x.upTo.Ledger, Entry: x.upTo.Entry, Batch: x.upTo.Batch + 1<<20}
}

func (x trimmed) Beginning(p int) (eventlog.Position, error) {
	if p == x.partition {
		return x.begin(), nil
	}
	return x.Topic.Beginning(p)
}

// TestTrimmed: what is archived may be deleted, from both logs: the archive goes on to grow, and the
// archive and the logs together verify. What is deleted before it is archived is refused.
func TestTrimmed(t *testing.T) {
	t.Parallel()
	for _, exact := range []bool{true, false} {
		data, dir := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "archive")
		decide(t, data, "plain")
		mustCreate(t, dir, readLogs(t, data))
		a, err := archive.Open(dir)
		must(t, err)
		end := a.End(1)
		decide(t, data, "preempted")
		logs := readLogs(t, data)
		at := func(s string) eventlog.Position {
			p, err := eventlog.ParsePosition(s)
			must(t, err)
			return p
		}
		cut := audit.Logs{
			Events: trimmed{logs.Events, 1, at(end.Events), exact}, Decisions: trimmed{logs.Decisions, 1, at(end.Decisions), exact}, Policies: logs.Policies,
		}
		if _, err := audit.Verify(t.Context(), cut, 1); !errors.Is(err, eventlog.ErrTrimmed) {
			t.Errorf("the logs alone: %v", err)
		}
		want, err := audit.Verify(t.Context(), logs, 1)
		must(t, err)
		if got, err := audit.Verify(t.Context(), a.Join(cut), 1); err != nil || got.End != want.End || got.Progress != want.Progress {
			t.Errorf("with the archive: %+v, %v", got, err)
		}
		mustCreate(t, dir, cut)
		mustBeWhole(t, dir)
		if got := mustReopen(t, dir).End(1); got.Running != want.Progress.Running.String() {
			t.Errorf("the archive ends with %+v, want running hash %v", got, want.Progress.Running)
		}

		// One message more of the decisions is gone than is archived.
		next := readAll(t, logs.Decisions, 1, at(end.Decisions))[0].Position
		lost := audit.Logs{Events: logs.Events, Decisions: trimmed{logs.Decisions, 1, next, exact}, Policies: logs.Policies}
		short := filepath.Join(t.TempDir(), "short")
		must(t, os.CopyFS(filepath.Join(short, "000001"), os.DirFS(filepath.Join(dir, "000001"))))
		if _, err := create(t, short, lost, archive.Options{}); err == nil {
			t.Error("decisions that were deleted before they were archived: no error")
		}
		if got := mustBeWhole(t, short); got.Ranges != 1 {
			t.Errorf("it has %d ranges", got.Ranges)
		}
	}
}

func mustReopen(t testing.TB, dir string) *archive.Archive {
	t.Helper()
	a, err := archive.Open(dir)
	must(t, err)
	return a
}

// TestEventsGone: decisions whose events were deleted are archived only if that is asked for, and
// are never said to be verified.
func TestEventsGone(t *testing.T) {
	t.Parallel()
	data, dir := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "archive")
	decide(t, data, "plain")
	logs := readLogs(t, data)
	logs.Events = trimmed{logs.Events, 2, readAll(t, logs.Events, 2, eventlog.Start)[100].Position, true}
	if _, err := create(t, dir, logs, archive.Options{}); !errors.Is(err, archive.ErrEventsGone) || !strings.Contains(err.Error(), "partition 2") {
		t.Fatalf("events are gone: %v", err)
	}
	m, err := create(t, dir, logs, archive.Options{WithoutEvents: true})
	if err != nil || len(m.Chains) != 3 || m.Chains[2].EventsMissing == "" || m.Chains[0].EventsMissing != "" {
		t.Fatalf("%+v, %v", m, err)
	}
	r := verify(t, dir)
	if r.Whole() || len(r.Problems) != 0 || len(r.Chains) != 3 {
		t.Fatalf("%+v", r)
	}
	if c := r.Chains[2]; c.NotDerived == "" || c.Derived != 0 || c.Decisions == 0 {
		t.Errorf("%+v", c)
	}
	if c := r.Chains[1]; c.NotDerived != "" || c.Derived != c.Events {
		t.Errorf("%+v", c)
	}
}

// TestDataDirectory: the real thing: segments of the embedded log are deleted.
func TestDataDirectory(t *testing.T) {
	t.Parallel()
	data, dir := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "archive")
	decide(t, data, "plain")
	small(t, app.Dir(data))
	must(t, os.RemoveAll(filepath.Join(data, "state")))
	must(t, os.RemoveAll(filepath.Join(data, "jobs.sqlite")))
	decide(t, data, "preempted")
	mustCreate(t, dir, readLogs(t, data))
	mustBeWhole(t, dir)
	for p := range 3 {
		partition := filepath.Join(app.Dir(data).Decisions(), fmt.Sprintf("%04d", p))
		segments, err := filepath.Glob(filepath.Join(partition, "*.seg"))
		must(t, err)
		if len(segments) < 2 {
			t.Fatalf("%s has only %v", partition, segments)
		}
		must(t, os.Remove(segments[0]))
	}
	decide(t, data, "retried")
	logs := readLogs(t, data)
	if _, err := audit.Verify(t.Context(), logs, 0); !errors.Is(err, eventlog.ErrTrimmed) {
		t.Errorf("the logs alone: %v", err)
	}
	if m := mustCreate(t, dir, logs); m == nil {
		t.Error("nothing was new")
	}
	mustBeWhole(t, dir)
}

// small writes the decision log again, with a segment for each envelope.
func small(t *testing.T, data app.Dir) {
	t.Helper()
	old, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: data.Decisions(), ReadOnly: true, Manual: true})
	must(t, err)
	to := string(data) + "-small"
	log, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: to, Partitions: old.Partitions(), SegmentBytes: 1})
	must(t, err)
	for p := range old.Partitions() {
		for _, m := range readAll(t, old, p, eventlog.Start) {
			must(t, log.AppendSync(t.Context(), p, []eventlog.Message{m}))
		}
	}
	must(t, errors.Join(old.Close(), log.Close(), os.RemoveAll(data.Decisions()), os.Rename(to, data.Decisions())))
}

package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/app"
)

// runningHashes are the lines of verify that say what was derived.
var runningHashes = regexp.MustCompile(`running hash [0-9a-f]{64}`)

// TestNoSilentDamage flips bits in, and cuts, every kind of file that verify reads: logs,
// archives, checkpoints, signed reports, and the recordings that histories come from.
// Whoever reads it either says so, or gets what was there before. (TestDamagedDirectory
// does the same for states and job databases, TestSign for every byte of a report.)
func TestNoSilentDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, archived, vault := filepath.Join(dir, "data"), filepath.Join(dir, "archive"), filepath.Join(dir, "vault")
	recorded := filepath.Join(dir, "recording", "preempted.jsonl.gz")
	upDrained(t, data).exits(t, exitFine)
	inProcess(t, "archive", "create", archived, "--data", data).exits(t, exitFine)
	takeCheckpoints(t, data, "file://"+vault)
	private, public := newKeys(t, dir)
	signed := writeFile(t, dir, "signed/report.json", inProcess(t, "verify", "--data", data, "--sign", private).exits(t, exitFine).out)
	b, err := os.ReadFile(damageFeed)
	must(t, err)
	writeFile(t, dir, "recording/preempted.jsonl.gz", string(b))

	imports := 0
	total := 0
	for _, k := range []struct {
		name, root string
		read       func() result
		same       func(result) string // what must be equal if nobody says anything
	}{
		{"log", filepath.Dir(app.Dir(data).Events()), func() result { return inProcess(t, "verify", "--data", data) }, nil},
		{"archive", archived, func() result { return inProcess(t, "archive", "verify", archived) }, nil},
		{"checkpoint", vault, func() result { return inProcess(t, "verify", "--data", data, "--checkpoints", "file://"+vault) }, func(r result) string {
			return strings.Join(runningHashes.FindAllString(r.out, -1), "\n")
		}},
		{"report", filepath.Dir(signed), func() result { return inProcess(t, "verify", "--check-signature", signed, "--public-key", public) }, nil},
		{"recording", filepath.Dir(recorded), func() result {
			imports++
			log := filepath.Join(dir, fmt.Sprint("log", imports))
			r := inProcess(t, "import", recorded, "--log", log)
			if r.code != exitFine {
				return r
			}
			return inProcess(t, "replay", "--log", log, "--policies", examplesDir, "-o", "json", "--all")
		}, nil},
	} {
		same := k.same
		if same == nil {
			same = func(r result) string { return r.out }
		}
		want := same(k.read().exits(t, exitFine))
		kinds := map[string][]string{}
		must(t, filepath.WalkDir(k.root, func(path string, d fs.DirEntry, err error) error {
			if info, infoErr := d.Info(); err == nil && infoErr == nil && info.Mode().IsRegular() && info.Size() > 0 {
				kinds[fileKind(k.root, path)] = append(kinds[fileKind(k.root, path)], path)
			}
			return err
		}))
		if len(kinds) == 0 {
			t.Fatalf("%s: no files", k.name)
		}
		for kind, paths := range kinds {
			random := rand.New(rand.NewPCG(7, uint64(len(kind))))
			for range 19 { // of each kind
				path := paths[random.IntN(len(paths))]
				whole, err := os.ReadFile(path)
				must(t, err)
				what := damage(t, random, path)
				r := k.read()
				if r.code == exitFine && same(r) != want {
					t.Errorf("%s, %s, %s: another answer and no error", k.name, path, what)
				}
				if r.code != exitFine && r.out+r.err == "" {
					t.Errorf("%s, %s, %s: exit code %d and no word", k.name, path, what, r.code)
				}
				must(t, os.WriteFile(path, whole, 0o600))
				if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, whole) {
					t.Fatal(err)
				}
				total++
			}
		}
		if got := same(k.read().exits(t, exitFine)); got != want {
			t.Fatalf("%s: what was repaired gives another answer", k.name)
		}
	}
	if total < 500 {
		t.Errorf("only %d damages", total)
	}
	t.Logf("%d damages", total)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fileKind is the kind of a file: its name without numbers and digests, below the log that
// it belongs to.
func fileKind(root, path string) string {
	rel, _ := filepath.Rel(root, path)
	return regexp.MustCompile(`[0-9a-f]*[0-9][0-9a-f]*(-[0-9a-f]+)?`).ReplaceAllString(rel, "N")
}

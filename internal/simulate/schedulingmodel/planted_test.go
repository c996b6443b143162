package schedulingmodel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// bug is a wrong shortcut, or a wrong reading, by patches of the source.
type bug struct {
	what    string
	patches []patch
}

// rare are bugs that need more random instances than each run has: make schedules has enough.
var rare = []string{
	"a cycle without changes is skipped though the last one scheduled, in Armada's order",
	"what a queue would have with the last job of a cycle remains in its rank",
	"like Armada, keys that failed are tried again",
	"a gang that loses a job loses all, whatever it needs",
}

// patch replaces a string that occurs exactly once in a file of internal/simulate/scheduling.
type patch struct{ file, old, new string }

// net is the tests that must catch planted bugs, on as many random instances as they draw in every run.
type net struct {
	name, dir, tests string
	bugs             []bug
}

func nets() []net {
	return []net{
		{"cycles", "./internal/simulate/scheduling", "TestSchedulerIsSchedule|TestSchedulerRejects|TestTriedAgain", plantedInScheduler()},
		{"model", "./internal/simulate/schedulingmodel", "TestAgreement|TestManyNodes|TestBadInput|TestLaws", plantedInSchedule()},
		{"rare cases", "./internal/simulate/scheduling", "TestFractionsAreExact|TestGangs|TestBadInput", plantedInRareCases()},
	}
}

// patched is the source of the files that a bug changes.
func patched(t *testing.T, root string, b bug) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, p := range b.patches {
		file := filepath.Join(root, "internal", "simulate", "scheduling", p.file)
		source, ok := files[file]
		if !ok {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			source = string(raw)
		}
		if n := strings.Count(source, p.old); n != 1 {
			t.Fatalf("%s: %q stands there %d times, want once: the code has changed, so the planted bug %q must", p.file, p.old, n, b.what)
		}
		files[file] = strings.Replace(source, p.old, p.new, 1)
	}
	return files
}

// TestPlantedBugsFit: each patch still finds its place, so that none goes stale between the runs that compile them.
func TestPlantedBugsFit(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nets() {
		for _, b := range n.bugs {
			t.Run(n.name+" "+b.what, func(t *testing.T) { patched(t, root, b) })
		}
	}
}

var (
	caughtBy = regexp.MustCompile(`(?m)(seed \d+)[,:]|(panic: .{0,60})`)
	failed   = regexp.MustCompile(`(?m)^ *--- FAIL: Test(?:Laws/)?(\S+)`)
)

// TestPlantedBugs plants one bug after another: the tests of its net must catch it. It builds programs for each, so it runs only with
// PLANTED=1; the name of a net takes those of that net, and other values are regular expressions of bugs. It logs
// what caught each bug. Each law must catch some.
func TestPlantedBugs(t *testing.T) {
	which := os.Getenv("PLANTED")
	if which == "" {
		t.Skip("set PLANTED=1 to plant bugs and catch them; it takes minutes")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	broken := map[string]bool{}
	for _, n := range nets() {
		for _, b := range n.bugs {
			if which != "1" && which != n.name && !regexp.MustCompile(which).MatchString(b.what) {
				continue
			}
			t.Run(n.name+" "+b.what, func(t *testing.T) {
				program := plant(t, root, b, n.dir)
				out, caught := run(t, root, program, n, slices.Contains(rare, b.what))
				if !caught {
					t.Error("not caught")
				}
				how := ""
				if by := caughtBy.FindSubmatch(out); n.name == "cycles" && by != nil {
					how = string(bytes.Join(by[1:], nil))
				}
				for _, name := range failed.FindAllSubmatch(out, -1) {
					broken[string(name[1])] = true
					how += " " + string(name[1])
				}
				fmt.Fprintf(&table, "| %s | %s | %s |\n", n.name, b.what, how)
			})
		}
	}
	t.Logf("net, bug, and what caught it:\n%s", &table)
	for _, l := range laws {
		if name := strings.ReplaceAll(l.name, " ", "_"); (which == "1" || which == "model") && !broken[name] {
			t.Errorf("no planted bug breaks %s", name)
		}
	}
}

// plant builds the tests of a directory over a copy of the source with a bug.
func plant(t *testing.T, root string, b bug, tests string) string {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	for file, source := range patched(t, root, b) {
		changed := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(changed, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[file] = changed
	}
	replace[filepath.Join(root, "internal", "simulate", "scheduling", "bench_test.go")] = "" // it needs much more to be built
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	list, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "planted.test")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", list, "-o", program, tests)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%q does not compile: %v\n%s", b.what, err, out)
	}
	return program
}

// run runs the tests of a net in their directory, on 20,000 random instances if the bug is rare. It says whether one failed.
func run(t *testing.T, root, program string, n net, rare bool) ([]byte, bool) {
	t.Helper()
	args, sequences := []string{"-test.run=^(" + n.tests + ")$", "-test.timeout=10m"}, ""
	if n.name == "model" {
		args = append(args, "-rapid.shrinktime=1ms", "-rapid.nofailfile")
	}
	switch {
	case rare && n.name == "model":
		args = append(args, "-rapid.checks=20000")
	case rare:
		sequences = "20000"
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = filepath.Join(root, n.dir)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "SEQUENCES="+sequences)
	out, err := cmd.CombinedOutput()
	return out, err != nil
}

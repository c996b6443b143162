package sim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// net is a test that must catch planted bugs.
type net struct{ tests, test string }

var (
	bySimulation = net{"./internal/test/sim", "TestSim"}
	byModel      = net{"./internal/evaluator", "TestGroups(AgainstNaiveModel|Replayed)"}
)

// planted are the bugs that the simulation must catch.
func planted() []bug { return append(plantedProtocol(), plantedGroups()...) }

// TestPlantedBugs breaks each rule that protocol.md marks ✂ and many of groups, one at a time, and
// runs the simulation on the broken code: it must fail. It builds a program for
// each, so it runs only with PLANTED=1; PLANTED=11 takes those of rule 11 alone, PLANTED=groups those of groups.
// SIM_SEEDS says after how many seeds a bug counts as missed (5,000).
func TestPlantedBugs(t *testing.T) {
	rule := os.Getenv("PLANTED")
	if rule == "" {
		t.Skip("set PLANTED=1 to plant bugs and catch them; it takes minutes")
	}
	seeds := number(t, "SIM_SEEDS", 5000)
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	all := planted()
	simulated := len(all)
	for i, b := range append(all, plantedForModel()...) {
		if rule != "1" && rule != b.rule && !strings.HasPrefix(b.rule, rule+" ") {
			continue
		}
		t.Run(fmt.Sprintf("%02d", i+1), func(t *testing.T) {
			by := bySimulation
			if i >= simulated {
				by = byModel
			}
			program := plant(t, root, b, by)
			seed, why := catch(t, program, by, seeds)
			if seed == "" {
				t.Errorf("rule %s: %q was not caught by %d seeds of %s", b.rule, b.what, seeds, by.test)
			}
			fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", b.rule, b.what, seed, why)
		})
	}
	t.Logf("rule, bug, seed that caught it (of 1, 2, 3, …), how:\n%s", &table)
}

// TestPlantedBugsFit: each patch still finds its place, so that none goes stale
// between the runs that compile them.
func TestPlantedBugsFit(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range append(planted(), plantedForModel()...) {
		t.Run(b.rule+" "+b.what, func(t *testing.T) { patched(t, root, b) })
	}
}

// patched is the source of the files that a bug changes.
func patched(t *testing.T, root string, b bug) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, p := range b.patches {
		file := filepath.Join(root, "internal", filepath.FromSlash(p.file))
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

// plant builds the test that must catch a bug over a copy of the source with it.
func plant(t *testing.T, root string, b bug, by net) string {
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
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "planted.test")
	build := exec.Command("go", "test", "-c", "-overlay", list, "-o", program, by.tests)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%q does not compile: %v\n%s", b.what, err, out)
	}
	return program
}

var caught = regexp.MustCompile(`(?m)seed (\d+)[:,] (.*)$`)

// catch runs the seeds in order, and returns the first that fails and why.
func catch(t *testing.T, program string, by net, seeds uint64) (seed, why string) {
	t.Helper()
	run := exec.Command(program, "-test.run=^"+by.test+"$", "-test.timeout=20m")
	run.Env = append(os.Environ(), "GOMAXPROCS=1", fmt.Sprintf("SIM_SEEDS=%d", seeds), "SIM_SEED=", "SIM_FIRST=", fmt.Sprintf("HISTORIES=%d", seeds))
	out, err := run.CombinedOutput()
	if err == nil {
		return "", ""
	}
	found := caught.FindSubmatch(out)
	if found == nil {
		t.Fatalf("the simulation ended otherwise than by a seed: %v\n%.2000s", err, out)
	}
	why = string(found[2])
	if len(why) > 110 {
		why = why[:110] + "…"
	}
	return string(found[1]), strings.ReplaceAll(why, "|", "/")
}

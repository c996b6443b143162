package schedulingmodel

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/test/planted"
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
	"a node may have too many jobs only if it has them from the beginning",
	"a gang with another label follows",
	"a job follows one that requests more",
	"like Armada, a gang follows a less urgent one",
	"the jobs that a cycle scheduled before it was full remain",
	"the least urgent class is selected like all others",
	"jobs are spared from the first on",
	"the first job of a queue is displaced first",
}

// patch changes a file of internal/simulate/scheduling.
type patch = planted.Patch

func (b *bug) planted() *planted.Bug {
	return &planted.Bug{Dir: "internal/simulate/scheduling", What: b.what, Patches: b.patches}
}

// net is the tests that must catch planted bugs, on as many random instances as they draw in every run.
type net struct {
	name, dir, tests string
	bugs             []bug
}

func nets() []net {
	return []net{
		{"cycles", "./internal/simulate/scheduling", "TestSchedulerIsSchedule|TestSchedulerRejects|TestTriedAgain|TestAlikeGangs|TestRoomAgain", plantedInScheduler()},
		{"model", "./internal/simulate/schedulingmodel", "TestAgreement|TestManyNodes|TestBadInput|TestLaws", plantedInSchedule()},
		{"rare cases", "./internal/simulate/scheduling", "TestFractionsAreExact|TestGangs|TestBadInput", plantedInRareCases()},
	}
}

// TestPlantedBugsFit: each patch still finds its place, so that none goes stale between the runs that compile them.
func TestPlantedBugsFit(t *testing.T) {
	t.Parallel()
	for _, n := range nets() {
		for _, b := range n.bugs {
			t.Run(n.name+" "+b.what, func(t *testing.T) { b.planted().Fits(t) })
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
	var table bytes.Buffer
	broken := map[string]bool{}
	for _, n := range nets() {
		for _, b := range n.bugs {
			if which != "1" && which != n.name && !regexp.MustCompile(which).MatchString(b.what) {
				continue
			}
			t.Run(n.name+" "+b.what, func(t *testing.T) {
				program := b.planted().Program(t, n.dir, "internal/simulate/scheduling/bench_test.go") // that one needs much more to be built
				out, caught := run(t, program, n, slices.Contains(rare, b.what))
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

// run runs the tests of a net in their directory, on 20,000 random instances if the bug is rare. It says whether one failed.
func run(t *testing.T, program string, n net, rare bool) ([]byte, bool) {
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
	cmd.Dir = filepath.Join(planted.Root(t), n.dir)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "SEQUENCES="+sequences)
	out, err := cmd.CombinedOutput()
	return out, err != nil
}

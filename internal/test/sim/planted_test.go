package sim_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/test/planted"
)

// net is a test that must catch planted bugs.
type net struct{ tests, test string }

var (
	bySimulation = net{"./internal/test/sim", "TestSim"}
	byModel      = net{"./internal/evaluator", "Test(Groups|Budgets|)(AgainstNaiveModel|Replayed)"}
	byOther      = net{"./internal/test/independent", "TestIndependently"}
)

// simulated are the bugs that the simulation must catch.
func simulated() []bug { return append(plantedProtocol(), plantedGroups()...) }

// forModel are the bugs that the reference model must catch.
func forModel() []bug {
	return slices.Concat(plantedForModel(), plantedOrders(), plantedBreakers())
}

// forOther are the bugs in what protects a fleet that the independent model must catch too. It knows no groups, no state that is
// written and read back, and no version but the newest.
func forOther() []bug {
	all := slices.Concat(plantedProtection(), plantedBudgets(), plantedOrders(), plantedBreakers())
	all = slices.DeleteFunc(all, func(b bug) bool {
		return slices.Contains([]string{
			"the times of the floor are not stored", "the ids of orders are not stored", "an order acts on a member of a group",
			"a reader takes the retry from the failure, not from the answer", "a breaker holds before version 5",
		}, b.what)
	})
	for i := range all {
		all[i].rule = "other " + all[i].rule
	}
	return all
}

// TestPlantedBugs breaks each rule that protocol.md marks ✂ and many of groups, one at a time, and
// runs the simulation on the broken code: it must fail. It builds a program for
// each, so it runs only with PLANTED=1; PLANTED=11 takes those of rule 11 alone, PLANTED=groups those of groups, PLANTED=orders
// those of orders, PLANTED=breaker those of breakers, PLANTED=other those that the independent model must catch.
// SIM_SEEDS says after how many seeds a bug counts as missed (5,000).
func TestPlantedBugs(t *testing.T) {
	rule := os.Getenv("PLANTED")
	if rule == "" {
		t.Skip("set PLANTED=1 to plant bugs and catch them; it takes minutes")
	}
	seeds := number(t, "SIM_SEEDS", 5000)
	var table bytes.Buffer
	all := simulated()
	first := len(all)
	other := first + len(forModel())
	for i, b := range slices.Concat(all, forModel(), forOther()) {
		if rule != "1" && rule != b.rule && !strings.HasPrefix(b.rule, rule+" ") {
			continue
		}
		t.Run(fmt.Sprintf("%02d", i+1), func(t *testing.T) {
			by := bySimulation
			switch {
			case i >= other:
				by = byOther
			case i >= first:
				by = byModel
			}
			program := b.planted().Program(t, by.tests)
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
	for _, b := range slices.Concat(simulated(), forModel(), forOther()) {
		t.Run(b.rule+" "+b.what, func(t *testing.T) { b.planted().Fits(t) })
	}
	for _, by := range []net{bySimulation, byModel, byOther} {
		planted.Has(t, by.tests, by.test)
	}
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

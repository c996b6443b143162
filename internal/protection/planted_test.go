package protection_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/test/planted"
)

// plantedBugs are bugs in the guard, by file, what stands there and what takes its place. The tests of this package must catch each.
var plantedBugs = []struct {
	what  string
	patch planted.Patch
}{
	{"a success does not end what speaks against a node", planted.Patch{"judge.go", "		if end.Succeeded {\n			break\n", "		if end.Succeeded {\n			continue\n"}},
	{"runs count in the order in which they ended", planted.Patch{"judge.go", "cmp.Or(cmp.Compare(a.Started, b.Started), cmp.Compare(a.Time, b.Time)", "cmp.Or(cmp.Compare(a.Time, b.Time)"}},
	{"of one queue all jobs count", planted.Patch{"judge.go", "ofQueue[end.Queue] == most || ", "most < 0 || "}},
	{"a job counts with each of its runs", planted.Patch{"judge.go", "slices.Contains(e.jobs, end.Job) || ", ""}},
	{"what fails everywhere counts", planted.Patch{"judge.go", " || shares.failsEverywhere(end) {", " {"}},
	{"a node speaks for its own jobs", planted.Patch{"judge.go", "		other.ends--\n		if s.on[place{of, e.Node}].fails() {\n			other.failures--\n		}\n", ""}},
	{"too many nodes are suspects", planted.Patch{"judge.go", "!open && room <= 0", "false"}},
	{"a suspicion that is over takes room", planted.Patch{"judge.go", "		if s.Until > now {\n			active++", "		if true {\n			active++"}},
	{"a node rests always for the same time", planted.Patch{"judge.go", "p.RestAfter(before, s.Certain)", "p.RestAfter(0*before, s.Certain)"}},
	{"what led to a suspicion counts twice", planted.Patch{"judge.go", "			from = max(from, was.Since)", "			from = max(from, 0*was.Since)"}},
	{"a suspicion is certain though no job succeeded elsewhere", planted.Patch{"judge.go", "e.better > 0 && ", ""}},
	{"a suspicion is certain though most jobs failed elsewhere", planted.Patch{"judge.go", " && 2*e.better >= e.again", ""}},
	{"a success on the node itself is one elsewhere", planted.Patch{"judge.go", "end.Node != e.node && ", ""}},
	{"a node of which a person has decided becomes a suspect", planted.Patch{"judge.go", "case settled(e.node), !open", "case !open"}},
	{"ends of a clock that is ahead count", planted.Patch{"judge.go", "		if e.Time > now { //", "		if false { //"}},
	{"failures from before the window count", planted.Patch{"judge.go", "end.Time <= from || ", ""}},
	{"a preempted run speaks against its node", planted.Patch{"window.go", "c != policy.Preempted && ", ""}},
	{"an end that is added twice counts twice", planted.Patch{"window.go", " || w.runs[e.Run] {", " {"}},
	{"a window holds any number of ends", planted.Patch{"window.go", "max(0, len(w.ends)-MaxEnds)", "0"}},
	{"any number of nodes is known", planted.Patch{"window.go", "ok || len(w.nodes) < maxNodes", "ok || true"}},
	{"nodes are known for ever", planted.Patch{"window.go", "			delete(w.nodes, node)\n", "			_ = node\n"}},
	{"a queue that mostly succeeds is held", planted.Patch{"breaker.go", " && 2*of.failed >= of.all {", " {"}},
	{"half of the canaries close a breaker", planted.Patch{"breaker.go", "4*pr.passed >= 3*pr.sent:", "2*pr.passed >= pr.sent:"}},
	{"all that is held starts as canaries", planted.Patch{"breaker.go", "jobs[:min(len(jobs), int(p.Canaries))]", "jobs"}},
	{"what is released starts at once", planted.Patch{"breaker.go", "left > int64(Every) {", "left > int64(1<<62) {"}},
	{"more breakers open than may", planted.Patch{"breaker.go", "open[:min(len(open), max(0, room))]", "open"}},
	{"one queue opens breakers of all", planted.Patch{"breaker.go", "jobs += min(q.failed, most)", "jobs += q.failed"}},
	{"canaries are of the jobs that ran most", planted.Patch{"breaker.go", "cmp.Compare(x.Runs, y.Runs)", "cmp.Compare(y.Runs, x.Runs)"}},
	{"a run that never began is the longest", planted.Patch{"breaker.go", " && !e.Pending && e.Time", " && e.Time"}},
	{"queues take turns though the canaries of one passed", planted.Patch{"breaker.go", " || b.passed[o.Category] > since(o)", ""}},
	{"what led to a breaker counts twice", planted.Patch{"breaker.go", "from = max(from, was.Until) //", "from = max(from, 0*was.Until) //"}},
	{"a breaker that holds nothing stays open", planted.Patch{"breaker.go", "case max(o.Since, w.lastOf(c, now)) > now-int64(p.Window):", "case true:"}},
}

func bugOf(i int) *planted.Bug {
	return &planted.Bug{Dir: "internal/protection", What: plantedBugs[i].what, Patches: []planted.Patch{plantedBugs[i].patch}}
}

// TestPlantedBugsFit: each patch still finds its place, so that none goes stale between the runs that compile them.
func TestPlantedBugsFit(t *testing.T) {
	t.Parallel()
	for i := range plantedBugs {
		bugOf(i).Fits(t)
	}
}

var failedTest = regexp.MustCompile(`(?m)^ *--- FAIL: (Test\w+)`)

// TestPlantedBugs plants one bug after another: another test of this package must catch it. It builds a program for each, so it runs
// only with PLANTED=1; other values are regular expressions of bugs.
func TestPlantedBugs(t *testing.T) {
	which := os.Getenv("PLANTED")
	if which == "" {
		t.Skip("set PLANTED=1 to plant bugs and catch them; it takes minutes")
	}
	for i, b := range plantedBugs {
		if which != "1" && !regexp.MustCompile(which).MatchString(b.what) {
			continue
		}
		t.Run(strings.ReplaceAll(b.what, " ", "_"), func(t *testing.T) {
			run := exec.Command(bugOf(i).Program(t, "./internal/protection"), "-test.skip=^TestPlanted", "-test.timeout=5m")
			out, err := run.CombinedOutput()
			if err == nil {
				t.Fatal("not caught")
			}
			by := failedTest.FindSubmatch(out)
			if by == nil {
				t.Fatalf("it ended otherwise than by a test: %v\n%.2000s", err, out)
			}
			t.Logf("caught by %s", by[1])
		})
	}
}

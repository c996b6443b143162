package armadabox_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/test/armadabox"
)

// Random situations are decided atOnce in a scheduling cycle.
const atOnce = 80

// randoms are sets of random situations, of the seeds from 1 on. A file has what Armada did in each of them.
var randoms = []struct {
	file string
	n    int
	draw func(seed uint64) situation
	// sentence is what docs/internals/scheduling.md says.
	sentence string
}{
	{
		"testdata/random.txt", 500, randomSituation,
		"Of %d random situations, in %d of which Armada preempts, `LikeArmada` leases and preempts the same jobs, on the same nodes, in %d (%d of those with preemptions), and `Schedule` as documented the same jobs in %d.",
	},
	{
		"testdata/gangs.txt", 160, randomGangs,
		"Of %d with gangs and two resources, in %d of which Armada preempts, `LikeArmada` does the same in %d (%d), and `Schedule` as documented leases and preempts the same jobs in %d.",
	},
}

// TestRandomSituations holds Schedule with LikeArmada against what Armada did in random situations, and counts those in which Schedule as documented
// leases and preempts the same jobs, wherever they are leased. The counts stand in docs/internals/scheduling.md.
func TestRandomSituations(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range randoms {
		text, err := os.ReadFile(set.file)
		if err != nil {
			t.Fatal(err)
		}
		all, preempting, like, likePreempting, documented := 0, 0, 0, 0, 0
		for line := range strings.Lines(string(text)) {
			all++
			s, answer := set.draw(uint64(all)), strings.TrimSpace(line)
			got := s.schedule(t, true)
			same := got == answer
			if same {
				like++
			} else {
				t.Errorf("%s, %s: nodes: %q, jobs: %q: Armada: %s; LikeArmada: %s", set.file, s.name, s.nodes, s.jobs, answer, got)
			}
			if strings.Contains(answer, "preempted") {
				if preempting++; same {
					likePreempting++
				}
			}
			if sets(s.schedule(t, false)) == sets(answer) {
				documented++
			}
		}
		sentence := fmt.Sprintf(set.sentence, all, preempting, like, likePreempting, documented)
		if all != set.n || !strings.Contains(strings.Join(strings.Fields(string(docs)), " "), sentence) {
			t.Errorf("%s does not say: %s", docFile, sentence)
		}
	}
}

// TestRandomSituationsUnderArmada asks Armada again, with the flag -update.
func TestRandomSituationsUnderArmada(t *testing.T) {
	if !*update {
		t.Skip("asks Armada with -update only: six minutes")
	}
	box := armadabox.For(t)
	for _, set := range randoms {
		t.Run(set.file, func(t *testing.T) {
			var text strings.Builder
			for begin := 1; begin <= set.n; begin += atOnce {
				var all []situation
				for seed := begin; seed < min(begin+atOnce, set.n+1); seed++ {
					all = append(all, set.draw(uint64(seed)))
				}
				got := underArmada(t, box, all)
				for _, s := range all {
					fmt.Fprintln(&text, got[s.name])
				}
			}
			if err := os.WriteFile(set.file, []byte(text.String()), 0o600); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// sets leaves the nodes out of an outcome.
func sets(outcome string) string {
	fields := strings.Fields(outcome)
	for i, f := range fields {
		fields[i], _, _ = strings.Cut(f, "→")
	}
	return strings.Join(fields, " ")
}

// randomSituation is a cluster of one to three nodes, on which jobs of some queues and classes run as long as they have room, and on which
// others wait. Runs began in another order than jobs were submitted.
func randomSituation(seed uint64) situation {
	r := rand.New(rand.NewPCG(seed, 25))
	s := situation{name: fmt.Sprintf("seed %d", seed)}
	var free []int
	var nodes, jobs []string
	for i := range 1 + r.IntN(3) {
		free = append(free, 2+r.IntN(5))
		nodes = append(nodes, fmt.Sprintf("n%d %d", i, free[i]))
	}
	queues := []string{"a", "b", "c", "v"}[:2+r.IntN(3)]
	names := map[string]int{}
	ages := r.Perm(40)
	for i := range 3 + r.IntN(12) {
		queue := queues[r.IntN(len(queues))]
		names[queue]++
		size := 1 + r.IntN(2)*r.IntN(3)
		job := fmt.Sprintf("%s%d %d", queue, names[queue], size)
		if class := []string{"", "", "", "low", "high", "keep"}[r.IntN(6)]; class != "" {
			job += " class=" + class
		}
		if r.IntN(6) == 0 {
			job += fmt.Sprintf(" priority=%d", r.IntN(3))
		}
		if node := r.IntN(len(free)); r.IntN(3) > 0 && free[node] >= size {
			free[node] -= size
			job += fmt.Sprintf(" on=n%d since=%d", node, 100+ages[i])
		}
		jobs = append(jobs, job)
	}
	s.nodes, s.jobs = strings.Join(nodes, "; "), strings.Join(jobs, "; ")
	return s
}

// randomGangs is a cluster of two to four nodes with two resources, with jobs and gangs of two or three, of which all, some or none run: a member
// may have been requeued, or may have ended.
func randomGangs(seed uint64) situation {
	r := rand.New(rand.NewPCG(seed, 26))
	s := situation{name: fmt.Sprintf("seed %d", seed)}
	var free [][2]int
	var nodes, jobs []string
	for i := range 2 + r.IntN(3) {
		free = append(free, [2]int{2 + r.IntN(4), 2 + r.IntN(5)})
		nodes = append(nodes, fmt.Sprintf("n%d %d/%d", i, free[i][0], free[i][1]))
	}
	queues := []string{"a", "b", "c", "v"}[:2+r.IntN(3)]
	names := map[string]int{}
	ages := r.Perm(60)
	for i := range 4 + r.IntN(8) {
		queue, gang := queues[r.IntN(len(queues))], ""
		class := []string{"", "", "", "low", "high", "keep"}[r.IntN(6)]
		size := [2]int{1 + r.IntN(2)*r.IntN(2), r.IntN(3)}
		members, runs := 1, r.IntN(3) > 0
		if r.IntN(3) == 0 {
			members = 2 + r.IntN(2)
			gang = fmt.Sprintf(" gang=g%d,%d", i, members+max(0, r.IntN(6)-4))
		}
		for range members {
			names[queue]++
			job := fmt.Sprintf("%s%d %d/%d", queue, names[queue], size[0], size[1])
			if class != "" {
				job += " class=" + class
			}
			job += gang
			node := r.IntN(len(free))
			if runs && r.IntN(8) > 0 && free[node][0] >= size[0] && free[node][1] >= size[1] {
				free[node][0], free[node][1] = free[node][0]-size[0], free[node][1]-size[1]
				job += fmt.Sprintf(" on=n%d since=%d", node, 100+ages[len(jobs)])
			} else if gang == "" && r.IntN(4) == 0 {
				job += fmt.Sprintf(" avoid=n%d", node)
			}
			jobs = append(jobs, job)
		}
	}
	s.nodes, s.jobs = strings.Join(nodes, "; "), strings.Join(jobs, "; ")
	return s
}

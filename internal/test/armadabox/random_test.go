package armadabox_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/test/armadabox"
)

// atOnce is how many situations one scheduling cycle decides.
const atOnce = 80

// TestRandomSituations lets a real Armada decide as many random situations as the variable SITUATIONS says, from the seed SEED (1)
// on, and counts those in which Schedule leases and preempts the same jobs, wherever they are leased.
func TestRandomSituations(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("SITUATIONS"))
	if n == 0 {
		t.Skip("SITUATIONS is not set")
	}
	first, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	if err != nil {
		first = 1
	}
	box := armadabox.For(t)
	var counts struct{ all, preempting, like, likePreempting, documented int }
	for begin := 0; begin < n; begin += atOnce {
		var all []situation
		for i := begin; i < min(n, begin+atOnce); i++ {
			all = append(all, randomSituation(first+uint64(i)))
		}
		t.Run(fmt.Sprintf("%d to %d", begin+1, begin+len(all)), func(t *testing.T) {
			got := underArmada(t, box, all)
			for _, s := range all {
				answer, like := sets(got[s.name]), sets(s.schedule(t, true))
				preempts := strings.Contains(answer, "preempted")
				counts.all++
				if preempts {
					counts.preempting++
				}
				if sets(s.schedule(t, false)) == answer {
					counts.documented++
				}
				if like != answer {
					t.Logf("%s: nodes: %q, jobs: %q: Armada: %s; LikeArmada: %s", s.name, s.nodes, s.jobs, answer, like)
					continue
				}
				counts.like++
				if preempts {
					counts.likePreempting++
				}
			}
		})
	}
	t.Logf("of %d situations, %d with preemptions: LikeArmada does the same in %d (%d with preemptions), Schedule as documented in %d",
		counts.all, counts.preempting, counts.like, counts.likePreempting, counts.documented)
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

package armadabox_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/test/armadabox"
)

// Random situations are decided atOnce in a scheduling cycle; a file has what Armada did in those of the seeds from 1 on.
const (
	atOnce     = 80
	randomFile = "testdata/random.txt"
	randoms    = 500
)

// TestRandomSituations counts the random situations in which Schedule leases and preempts the same jobs as Armada did, wherever they are
// leased. The counts stand in docs/internals/scheduling.md.
func TestRandomSituations(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(randomFile)
	if err != nil {
		t.Fatal(err)
	}
	all, preempting, like, likePreempting, documented := 0, 0, 0, 0, 0
	for line := range strings.Lines(string(text)) {
		all++
		s, answer := randomSituation(uint64(all)), sets(strings.TrimSpace(line))
		same := sets(s.schedule(t, true)) == answer
		if same {
			like++
		} else if testing.Verbose() {
			t.Logf("%s: nodes: %q, jobs: %q: Armada: %s; LikeArmada: %s", s.name, s.nodes, s.jobs, answer, s.schedule(t, true))
		}
		if strings.Contains(answer, "preempted") {
			if preempting++; same {
				likePreempting++
			}
		}
		if sets(s.schedule(t, false)) == answer {
			documented++
		}
	}
	said := fmt.Sprintf("Of %d random situations, in %d of which Armada preempts, `LikeArmada` leases and preempts the same jobs in %d (%d of those with preemptions), and `Schedule` as documented in %d.",
		all, preempting, like, likePreempting, documented)
	docs, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	if all != randoms || !strings.Contains(string(docs), said) {
		t.Errorf("%s does not say: %s", docFile, said)
	}
}

// TestRandomSituationsUnderArmada asks Armada again, with the flag -update.
func TestRandomSituationsUnderArmada(t *testing.T) {
	if !*update {
		t.Skip("asks Armada with -update only: four minutes")
	}
	box := armadabox.For(t)
	var text strings.Builder
	for begin := 1; begin <= randoms; begin += atOnce {
		var all []situation
		for seed := begin; seed < min(begin+atOnce, randoms+1); seed++ {
			all = append(all, randomSituation(uint64(seed)))
		}
		t.Run(fmt.Sprintf("%d to %d", begin, begin+len(all)-1), func(t *testing.T) {
			got := underArmada(t, box, all)
			for _, s := range all {
				fmt.Fprintln(&text, got[s.name])
			}
		})
	}
	if err := os.WriteFile(randomFile, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
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

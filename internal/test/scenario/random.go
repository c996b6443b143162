package scenario

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

// outcomes are the possible outcomes of a run of a random job. Hanging is not among them, because nothing would
// end it.
var outcomes = []string{"success", "exit:1", "exit:3", "oom", "evicted", "deadline", "returned"}

// Jobs draws jobs: by a sequence of outcomes, on some nodes only, or for the first
// runs only; quick and slow; of both priority classes.
func (r *Random) Jobs() (jobs []Job) {
	if r == nil {
		return nil
	}
	rng := rand.New(rand.NewPCG(r.Seed, 0))
	one := func(from []string) string { return from[rng.IntN(len(from))] }
	for range r.Count {
		sim := map[string]string{"run-ms": strconv.Itoa(10 + rng.IntN(2500))}
		switch rng.IntN(4) {
		case 0:
			sim["outcome"], sim["fail-runs"] = one(outcomes), strconv.Itoa(1+rng.IntN(4))
		case 1:
			sim["outcome"], sim["bad-nodes"] = one(outcomes), "main-node-00,main-node-0"+strconv.Itoa(1+rng.IntN(7))
		default:
			var each []string
			for range 1 + rng.IntN(4) {
				each = append(each, one(outcomes))
			}
			sim["outcome"] = strings.Join(each, ";")
		}
		if rng.IntN(5) == 0 {
			sim["category"], sim["subcategory"] = one([]string{"infrastructure", "user"}), one([]string{"gpu", "network"})
		}
		if rng.IntN(10) == 0 {
			sim["message"] = "NCCL WARN Timeout"
		}
		jobs = append(jobs, Job{Name: "random", Sim: sim, Class: one([]string{"armada-default", "armada-preemptible"}), CPU: one([]string{"100m", "500m", "1"})})
	}
	return jobs
}

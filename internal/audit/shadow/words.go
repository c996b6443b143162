package shadow

import "fmt"

// Sentences sum up what the decisions would have changed; fails: some of them would have failed a job.
func (n *Jobs) Sentences(fails bool) []string {
	first := fmt.Sprintf("Armada failed %s of %s whose run failed", grouped(n.ArmadaFailed), countOf(n.All, "job"))
	if n.ArmadaFailed > 0 {
		first += fmt.Sprintf("; of the %s that it failed, Refloat would have retried %s", grouped(n.ArmadaFailed), someOf(n.WouldRetry))
	}
	all := []string{first + "."}
	switch {
	case n.RanAgain > 0:
		s := fmt.Sprintf("Armada reran %s that Refloat would have failed, of which %s succeeded", countOf(n.RanAgain, "job"), someOf(n.ThenSucceeded))
		if n.ThenOpen > 0 {
			s += fmt.Sprintf(" and %s not yet over", grouped(n.ThenOpen))
		}
		if n.ThenSucceeded > 0 {
			s += fmt.Sprintf(": in Enforce mode the %s that succeeded would have failed", grouped(n.ThenSucceeded))
		}
		all = append(all, s+".")
	case fails:
		all = append(all, "Armada reran no job that Refloat would have failed.")
	}
	if n.Cancelled > 0 {
		all = append(all, fmt.Sprintf("Cancelled after the failure: %s.", countOf(n.Cancelled, "job")))
	}
	if n.Open > 0 {
		all = append(all, fmt.Sprintf("Unfinished, so the last failed run is not compared: %s.", countOf(n.Open, "job")))
	}
	return all
}

// countOf formats a number of things: 1 job, 1,930 jobs.
func countOf(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return grouped(n) + " " + thing
}

// someOf formats a part of a count: none, 214, 1,930.
func someOf(n int) string {
	if n == 0 {
		return "none"
	}
	return grouped(n)
}

// grouped formats a number with thousands separators.
func grouped(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

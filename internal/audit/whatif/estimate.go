package whatif

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Estimate is what retries that did not take place would have done, judged by retries that did.
type Estimate struct {
	Policy string `json:"policy"`
	Rule   string `json:"rule"`  // that grants the retry, or whose restart of the group it is
	Retry  uint32 `json:"retry"` // which one of the job by this rule, from 1; 0: it does not count them
	Cause  string `json:"cause"` // of the failure
	Jobs   uint64 `json:"jobs"`  // whose history ends without it
	// Of so many retries that took place, Succeeded had a run that succeeded. Of is 0 if the history has no retry at all.
	Succeeded uint64 `json:"succeeded"`
	Of        uint64 `json:"of"`
	Basis     string `json:"basis"` // which retries these are, in words
}

// Expected is how many of the jobs succeed if these retries do as often as those of the basis; without a basis, 0.
func (e *Estimate) Expected() float64 {
	return float64(e.Jobs) * float64(e.Succeeded) / float64(max(e.Of, 1))
}

// retryKind is what tells retries apart of which one is judged by the others.
type retryKind struct {
	policy, rule string // "": Armada's own
	number       uint32
	cause        string
}

// tally counts the retries of a kind that took place and whose run has ended.
type tally struct{ succeeded, of uint64 }

func (t *tally) add(o tally) { t.succeeded, t.of = t.succeeded+o.succeeded, t.of+o.of }

// untold counts the jobs whose history ends without a retry, by its kind.
type untold map[retryKind]uint64

func (u untold) merge(o untold) {
	for k, n := range o {
		u[k] += n
	}
}

// estimates judges each kind by the retries that took place: those of the same rule and number; else of the rule's highest number
// below; else of the rule; else of the cause; else all.
func (u untold) estimates(took map[retryKind]tally) []Estimate {
	out := make([]Estimate, 0, len(u))
	for _, k := range slices.SortedFunc(maps.Keys(u), compareKinds) {
		e := Estimate{Policy: k.policy, Rule: k.rule, Retry: k.number, Cause: k.cause, Jobs: u[k]}
		e.judge(k, took)
		if n := len(out); n > 0 && out[n-1].sameBasis(&e) { // of another cause
			out[n-1].Jobs += e.Jobs
			out[n-1].Cause = ""
			continue
		}
		out = append(out, e)
	}
	return out
}

func (e *Estimate) sameBasis(o *Estimate) bool {
	return e.Policy == o.Policy && e.Rule == o.Rule && e.Retry == o.Retry && e.Basis == o.Basis
}

func (e *Estimate) judge(k retryKind, took map[retryKind]tally) {
	sum := func(of func(retryKind) bool) (t tally) {
		for other, n := range took {
			if of(other) {
				t.add(n)
			}
		}
		return t
	}
	byRule := func(o retryKind) bool { return k.rule != "" && o.policy == k.policy && o.rule == k.rule }
	rule := k.rule
	if k.policy != "" {
		rule = k.policy + "/" + k.rule
	}
	below := uint32(0)
	for o := range took {
		if byRule(o) && o.number < k.number {
			below = max(below, o.number)
		}
	}
	number := "a retry"
	if k.number > 0 {
		number = "the " + nth(k.number) + " retry"
	}
	for _, b := range []struct {
		what string
		of   func(retryKind) bool
	}{
		{fmt.Sprintf("%s by %s", number, rule), func(o retryKind) bool { return byRule(o) && o.number == k.number }},
		{fmt.Sprintf("no %s retry by %s took place, its %s", nth(k.number), rule, nth(below)), func(o retryKind) bool { return below > 0 && byRule(o) && o.number == below }},
		{fmt.Sprintf("any retry by %s", rule), byRule},
		{fmt.Sprintf("no retry by %s took place, any retry after %s", cmp.Or(rule, "a rule"), k.cause), func(o retryKind) bool { return o.cause == k.cause }},
		{fmt.Sprintf("no retry after %s took place, any retry", k.cause), func(retryKind) bool { return true }},
	} {
		if t := sum(b.of); t.of > 0 {
			e.Succeeded, e.Of, e.Basis = t.succeeded, t.of, fmt.Sprintf("%s succeeded in %d of %d cases", b.what, t.succeeded, t.of)
			return
		}
	}
	e.Basis = "no retry took place in the history, so there is nothing to estimate from"
}

func compareKinds(a, b retryKind) int {
	return cmp.Or(cmp.Compare(a.policy, b.policy), cmp.Compare(a.rule, b.rule), cmp.Compare(a.number, b.number), cmp.Compare(a.cause, b.cause))
}

// nth is an ordinal number: 1st, 2nd, 11th.
func nth(n uint32) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		suffix = []string{"th", "st", "nd", "rd", "th", "th", "th", "th", "th", "th"}[n%10]
	}
	return fmt.Sprint(n, suffix)
}

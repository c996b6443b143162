package query

import (
	"fmt"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
)

// Effect is what became of a decision. Each decision has exactly one, so the counts of all four add up to the decisions.
// The page, the commands and the API count decisions by it wherever they say "retried" or "failed for good"
// (docs/reference/glossary.md). Only what has not happened is counted otherwise: whatif counts what a candidate would
// decide, and a simulation its own runs.
type Effect uint8

// The effects of decisions.
const (
	Retried       Effect = iota // a JobRequeued that put its job back into the queue
	FailedForGood               // a JobFailed that ended its job
	InShadow                    // made in shadow: nobody acts on it, whatever it says and whenever it came
	Superseded                  // came too late: its events had been released, or its job had ended here before
)

var effects = [...]string{"retried", "failed for good", "in shadow", "superseded"}

// String returns the effect in words.
func (e Effect) String() string { return effects[e] }

// Took reports whether the decision changed its job.
func (e Effect) Took() bool { return e == Retried || e == FailedForGood }

func effectOf(requeue, shadow, acted bool) Effect {
	switch {
	case shadow:
		return InShadow
	case !acted:
		return Superseded
	case requeue:
		return Retried
	}
	return FailedForGood
}

// EffectOfCount returns the effect of decisions that a job database counted.
func EffectOfCount(c *jobdb.DecisionCount) Effect { return effectOf(c.Requeue, c.Shadow, c.Acted) }

// EffectOf returns the effect of a decision in an answer.
func EffectOf(d *audit.Decision) Effect {
	return effectOf(d.Requeues(), d.Shadow, !d.Superseded)
}

// EffectInLog returns the effect of a decision as far as the log shows it: that a decision came too late, only the job
// database knows.
func EffectInLog(d *chain.Decision) Effect { return effectOf(d.Requeue, d.Shadow, true) }

// Text says in a few words what a decision did to its job, or, if it had no effect, what it would have done.
func (e Effect) Text(requeue bool) string {
	switch {
	case e.Took():
		return e.String()
	case requeue:
		return "would retry"
	}
	return "would fail"
}

// Effects counts decisions by their effects.
type Effects struct {
	Retried       uint64 `json:"retried"`
	FailedForGood uint64 `json:"failedForGood"`
	InShadow      uint64 `json:"inShadow"`
	Superseded    uint64 `json:"superseded"`
}

func (n *Effects) add(e Effect, count uint64) {
	switch e {
	case Retried:
		n.Retried += count
	case FailedForGood:
		n.FailedForGood += count
	case InShadow:
		n.InShadow += count
	case Superseded:
		n.Superseded += count
	}
}

// All is the number of decisions.
func (n *Effects) All() uint64 { return n.Retried + n.FailedForGood + n.WithoutEffect() }

// WithoutEffect is the number of decisions in shadow, and of superseded ones.
func (n *Effects) WithoutEffect() uint64 { return n.InShadow + n.Superseded }

// Words says how many decisions had which effect.
func (n *Effects) Words() string {
	text := fmt.Sprintf("%d retried, %d failed for good", n.Retried, n.FailedForGood)
	if n.InShadow > 0 {
		text += fmt.Sprintf(", %d in shadow", n.InShadow)
	}
	if n.Superseded > 0 {
		text += fmt.Sprintf(", %d superseded", n.Superseded)
	}
	return text
}

// CountEffects counts the decisions of a job database by their effects.
func CountEffects(counts []jobdb.DecisionCount) (n Effects) {
	for i := range counts {
		n.add(EffectOfCount(&counts[i]), counts[i].Count)
	}
	return n
}

package main

import (
	"io"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/shadow"
)

// shadowLine is a line of `shadow report -o json`: exactly one field is set. Fields keep their meaning; new ones
// may be added. Each queue comes before its failed runs, the summary last.
type shadowLine struct {
	Queue   *shadowQueue   `json:"queue,omitempty"`
	Run     *shadowRun     `json:"run,omitempty"`
	Summary *shadowSummary `json:"summary,omitempty"`
}

type shadowQueue struct {
	Queue string `json:"queue"`
	// FirstGeneration and LastGeneration are those of its decisions in shadow; with --log both are 1.
	FirstGeneration uint64 `json:"firstGeneration"`
	LastGeneration  uint64 `json:"lastGeneration"`
	// EnforcedSince is the generation of the first enforced decision after those.
	EnforcedSince uint64           `json:"enforcedSince,omitempty"`
	Jobs          shadow.Jobs      `json:"jobs"` // each counted once
	Rules         []shadowRuleJSON `json:"rules"`
}

type shadowRuleJSON struct {
	Policy     string       `json:"policy"`
	Rule       string       `json:"rule"`
	WouldRetry shadow.Tally `json:"wouldRetry"`
	WouldFail  shadow.Tally `json:"wouldFail"`
	Waits      *shadowWaits `json:"waits,omitempty"` // of the retries, if any
}

type shadowWaits struct {
	Median  string `json:"median"`
	Longest string `json:"longest"`
	Total   string `json:"total"`
}

type shadowRun struct {
	Decision audit.Decision `json:"decision"`
	Armada   string         `json:"armada"` // Failed, RanAgain, Cancelled, Succeeded (without another run) or Open
	JobState string         `json:"jobState"`
	Wait     string         `json:"wait,omitempty"` // of a retry, pauses included
	Differs  bool           `json:"differs"`
	Lost     bool           `json:"lost"` // we would have failed it, but it succeeded in another run
}

type shadowSummary struct {
	Queues     int `json:"queues"`
	FailedRuns int `json:"failedRuns"`
	Differ     int `json:"differ"` // of them
	Lost       int `json:"lost"`   // of them
	Open       int `json:"open"`   // of them: not compared
}

func printShadowJSON(w io.Writer, queues []*shadow.Queue) error {
	enc := jsonLines(w)
	sum := shadowSummary{Queues: len(queues)}
	for _, q := range queues {
		if err := enc.Encode(shadowLine{Queue: shadowQueueJSON(q)}); err != nil {
			return err
		}
		for _, r := range q.Runs {
			line := shadowRunJSON(r)
			sum.FailedRuns++
			sum.Differ += one(line.Differs)
			sum.Lost += one(line.Lost)
			sum.Open += one(r.Fate == shadow.Open)
			if err := enc.Encode(shadowLine{Run: line}); err != nil {
				return err
			}
		}
	}
	return enc.Encode(shadowLine{Summary: &sum})
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

func shadowQueueJSON(q *shadow.Queue) *shadowQueue {
	out := &shadowQueue{
		Queue: q.Name, FirstGeneration: q.First, LastGeneration: q.Last, EnforcedSince: q.Enforced, Jobs: q.Jobs,
	}
	for _, r := range q.Rules {
		line := shadowRuleJSON{Policy: r.Policy, Rule: r.Rule, WouldRetry: withCodes(r.Retry), WouldFail: withCodes(r.Fail)}
		if r.Retry.Runs > 0 {
			line.Waits = &shadowWaits{Median: r.Waits.Median.String(), Longest: r.Waits.Longest.String(), Total: r.Waits.Total.String()}
		}
		out.Rules = append(out.Rules, line)
	}
	return out
}

// withCodes encodes an empty map as {} rather than null.
func withCodes(t shadow.Tally) shadow.Tally {
	if t.Codes == nil {
		t.Codes = map[string]int{}
	}
	return t
}

func shadowRunJSON(r *shadow.Run) *shadowRun {
	out := &shadowRun{
		Decision: audit.DecisionOf(r.Partition, r.Decision), Armada: r.Fate.String(), JobState: r.Job.String(), Differs: r.Differs(), Lost: r.Lost(),
	}
	out.Decision.Superseded = r.Superseded
	if r.Decision.Requeue {
		out.Wait = r.Wait().String()
	}
	return out
}

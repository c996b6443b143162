package query

import (
	"context"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/shadow"
	"github.com/refloat/refloat/internal/jobdb"
)

// ShadowReport compares the decisions that were made in shadow with what Armada did, by queue; queue "" and since 0 (Unix
// nanoseconds) select all.
func (s *Source) ShadowReport(ctx context.Context, queue string, since int64) (queues []*shadow.Queue, err error) {
	err = s.Jobs(ctx, func(q jobdb.Queries) error {
		queues, err = shadow.Read(q, shadow.Filter{Queue: queue, Since: since})
		return err
	})
	return queues, err
}

// ShadowLine is a line of a report: exactly one field is set. Each queue comes before its
// failed runs, the summary last.
type ShadowLine struct {
	Queue   *ShadowQueue   `json:"queue,omitempty"`
	Run     *ShadowRun     `json:"run,omitempty"`
	Summary *ShadowSummary `json:"summary,omitempty"`
}

// ShadowQueue is the comparison for one queue.
type ShadowQueue struct {
	Queue string `json:"queue"`
	// FirstGeneration and LastGeneration are those of its decisions in shadow; with --log both are 1.
	FirstGeneration uint64 `json:"firstGeneration"`
	LastGeneration  uint64 `json:"lastGeneration"`
	// EnforcedSince is the generation of the first enforced decision after those.
	EnforcedSince uint64       `json:"enforcedSince,omitempty"`
	Jobs          shadow.Jobs  `json:"jobs"` // each counted once
	Rules         []ShadowRule `json:"rules"`
}

// ShadowRule is the comparison for one rule of a queue.
type ShadowRule struct {
	Policy     string       `json:"policy"`
	Rule       string       `json:"rule"`
	WouldRetry shadow.Tally `json:"wouldRetry"`
	WouldFail  shadow.Tally `json:"wouldFail"`
	Waits      *ShadowWaits `json:"waits,omitempty"` // of the retries, if any
}

// ShadowWaits are the delays of retries, as durations.
type ShadowWaits struct {
	Median  string `json:"median"`
	Longest string `json:"longest"`
	Total   string `json:"total"`
}

// ShadowRun is one failed run that was decided in shadow.
type ShadowRun struct {
	Decision audit.Decision `json:"decision"`
	Armada   string         `json:"armada"` // Failed, RanAgain, Cancelled, Succeeded (without another run) or Open
	JobState string         `json:"jobState"`
	Wait     string         `json:"wait,omitempty"` // of a retry, pauses included
	Differs  bool           `json:"differs"`
	Lost     bool           `json:"lost"` // we would have failed it, but it succeeded in another run
}

// ShadowSummary counts everything.
type ShadowSummary struct {
	Queues     int `json:"queues"`
	FailedRuns int `json:"failedRuns"`
	Differ     int `json:"differ"` // of them
	Lost       int `json:"lost"`   // of them
	Open       int `json:"open"`   // of them: not compared
}

// ShadowLines visits the lines of a report.
func ShadowLines(queues []*shadow.Queue, visit func(*ShadowLine) error) error {
	sum := ShadowSummary{Queues: len(queues)}
	for _, q := range queues {
		if err := visit(&ShadowLine{Queue: shadowQueueOf(q)}); err != nil {
			return err
		}
		for _, r := range q.Runs {
			line := shadowRunOf(r)
			sum.FailedRuns++
			sum.Differ += one(line.Differs)
			sum.Lost += one(line.Lost)
			sum.Open += one(r.Outcome == shadow.Open)
			if err := visit(&ShadowLine{Run: line}); err != nil {
				return err
			}
		}
	}
	return visit(&ShadowLine{Summary: &sum})
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

func shadowQueueOf(q *shadow.Queue) *ShadowQueue {
	out := &ShadowQueue{
		Queue: q.Name, FirstGeneration: q.First, LastGeneration: q.Last, EnforcedSince: q.Enforced, Jobs: q.Jobs,
	}
	for _, r := range q.Rules {
		line := ShadowRule{Policy: r.Policy, Rule: r.Rule, WouldRetry: withCodes(r.Retry), WouldFail: withCodes(r.Fail)}
		if r.Retry.Runs > 0 {
			line.Waits = &ShadowWaits{Median: r.Waits.Median.String(), Longest: r.Waits.Longest.String(), Total: r.Waits.Total.String()}
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

func shadowRunOf(r *shadow.Run) *ShadowRun {
	out := &ShadowRun{
		Decision: audit.DecisionOf(r.Partition, r.Decision), Armada: r.Outcome.String(), JobState: r.Job.String(), Differs: r.Differs(), Lost: r.Lost(),
	}
	out.Decision.Superseded = r.Superseded
	if r.Decision.Requeue {
		out.Wait = r.Wait().String()
	}
	return out
}

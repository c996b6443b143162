package query

import (
	"context"
	"fmt"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policylog"
)

// BreakerCounts is what a breaker has held since it opened.
type BreakerCounts struct {
	State   string `json:"state"`          // open, or half-open: retries that it held have started
	Held    int    `json:"held"`           // retries that wait for its end
	Started int    `json:"started"`        // jobs of which a held retry started and is not held again
	Failed  int    `json:"canariesFailed"` // held retries that started, failed of its category, and are held again
}

// Text says it in words.
func (n *BreakerCounts) Text() string {
	return fmt.Sprintf("it is %s: it holds %s; %d that it held have started and are not held again, %d failed again", n.State, plural.Of(n.Held, "retry", "retries"), n.Started, n.Failed)
}

// CountBreaker counts what a breaker has held. nil: it is of one subcategory, and lists select by the category.
func CountBreaker(ctx context.Context, from Answers, b *policylog.Override) (*BreakerCounts, error) {
	if b.Subcategory != "" {
		return nil, nil
	}
	of := List{Criteria: jobdb.Criteria{Category: b.Category, Queue: b.Queue, Since: b.Time}, Codes: []string{policy.BreakerHeld.String()}}
	jobs, decisions := map[string]bool{}, 0
	if _, err := from.ListDecisions(ctx, &of, func(d *audit.Decision) error {
		if !d.Superseded && !d.Shadow {
			jobs[d.JobID] = true
			decisions++
		}
		return nil
	}); err != nil {
		return nil, err
	}
	n := &BreakerCounts{State: "open", Failed: decisions - len(jobs)}
	of.Since, of.Waiting = 0, true
	if _, err := from.ListJobs(ctx, &of, func(j *Job) error {
		if !j.Due(time.Unix(0, b.HeldUntil-1)) {
			n.Held++
			delete(jobs, j.JobID)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if n.Started = len(jobs); n.Started > 0 {
		n.State = "half-open"
	}
	return n, nil
}

package policy_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/authoring/suite"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/test/oracle"
)

func TestOracleK8sMatchPodFailurePolicy(t *testing.T) {
	t.Parallel()
	oracleK8sMatchPodFailurePolicy().Test(t)
}

func oracleK8sMatchPodFailurePolicy() *oracle.Suite {
	return &oracle.Suite{
		File: "k8s_match_pod_failure_policy.json",
		Run: func(c *oracle.Check) {
			var p k8sPolicy
			var observed struct{ Pod *k8sPod }
			var gates k8sGates
			if !c.Inputs(map[string]any{"policy": &p, "observed": &observed, "gates": &gates}) {
				return
			}
			if c.CannotRun(oracle.Reason{Holds: observed.Pod == nil || !observed.Pod.failed(), Why: "no pod that failed"}) || c.LeaveOut(p.reasons(gates, *observed.Pod)...) {
				return
			}
			var expected struct {
				Action, JobFailureMessage string
				CountsTowardsBackoffLimit bool
				Rule                      *int `json:"matchedRuleIndex_fromMessage"`
			}
			if !c.Expected(&expected) {
				return
			}
			j := p.translate(c)
			d := j.submit(observed.Pod, 0, 0).fail(j.failure(observed.Pod))
			oracle.Equal(c, "action", j.action(&d), expected.Action)
			oracle.Equal(c, "code", d.Code, map[string]policy.Code{"": policy.DefaultRetry, "Ignore": policy.RuleIgnore, "FailJob": policy.RuleFail, "FailIndex": policy.RuleFail, "Count": policy.RuleRetry}[j.action(&d)])
			oracle.Equal(c, "message", j.message(&d), knownPart(expected.JobFailureMessage))
			if d.Requeue {
				oracle.Equal(c, "counted", d.GlobalUsed == 1, expected.CountsTowardsBackoffLimit)
			} else {
				oracle.Equal(c, "counted", true, expected.CountsTowardsBackoffLimit)
			}
			messageRule, rule := -1, -1 // of the message, which only FailJob has
			if expected.Rule != nil {
				messageRule = *expected.Rule
			}
			if j.action(&d) == "FailJob" {
				rule = j.places[d.place()]
			}
			oracle.Equal(c, "rule", rule, messageRule)
		},
		Same: func(path string, a, b any) bool {
			return path == "expected.jobFailureMessage" && knownPart(fmt.Sprint(a)) == knownPart(fmt.Sprint(b))
		},
	}
}

// maxDoublings is when a delay that at least doubles has reached every maximum
// of our files.
const maxDoublings = 64

func TestOracleK8sBackoffRemaining(t *testing.T) {
	t.Parallel()
	oracleK8sBackoffRemaining().Test(t)
}

func oracleK8sBackoffRemaining() *oracle.Suite {
	return &oracle.Suite{File: "k8s_backoff_remaining.json", Run: func(c *oracle.Check) {
		var p struct {
			Backoff *struct {
				InitialDelaySeconds, MaxDelaySeconds int64
				Multiplier                           float64
			}
			Scope string
		}
		var prior struct {
			ConsecutiveFailures number
			LastFailureTime     string
			LastFailedPod       *k8sPod
			Note                string
		}
		var now *string
		if !c.Inputs(map[string]any{"policy": &p, "prior": &prior, "now": &now}) {
			return
		}
		n, ignored, last := or(prior.ConsecutiveFailures, 0), int64(0), prior.LastFailureTime
		if pod := prior.LastFailedPod; pod != nil {
			n, ignored = or(pod.IndexFailureCount, 0)+1, or(pod.IndexIgnoredFailureCount, 0)
			for _, s := range pod.statuses() {
				if at, ok := s.FinishedAt.(string); ok && at > last {
					last = at
				}
			}
		}
		failedAt, err := time.Parse(time.RFC3339, last)
		at, errNow := time.Parse(time.RFC3339, text(now))
		if c.CannotRun(
			oracle.Reason{Holds: n <= 0, Why: "no failure"},
			oracle.Reason{Holds: p.Backoff == nil, Why: "no backoff"},
			oracle.Reason{Holds: err != nil || errNow != nil, Why: "no time of the failure, or no present"},
		) || c.LeaveOut(
			oracle.Reason{Holds: ignored > 0, Why: "ignored failures: for us each rule's delay grows by its own retries (semantics.md 6)"},
		) || c.CannotRun(oracle.Reason{Holds: n > maxDoublings && p.Backoff.Multiplier < 2, Why: "more failures than a test lets fail"}) {
			return
		}
		if n > maxDoublings {
			c.Adapt("after so many doublings the delay is at its maximum, whatever the count")
			n = maxDoublings
		}
		var expected struct{ RemainingDelaySeconds number }
		if !c.Expected(&expected) {
			return
		}
		docs := []obj{
			policyDoc(obj{"defaultAction": "Retry", "backoff": obj{
				"initialDelay": strconv.FormatInt(p.Backoff.InitialDelaySeconds, 10) + "s", "maxDelay": strconv.FormatInt(p.Backoff.MaxDelaySeconds, 10) + "s", "multiplier": p.Backoff.Multiplier,
			}}),
			settingsDoc(obj{"globalMaxRetries": most, "defaultPolicyName": "p"}),
		}
		j := newJob(c, suite.Job{}, docs...)
		j.at = failedAt.Add(-maxDoublings * time.Second).UnixNano()
		j.before(n-1, suite.Failure{})
		d := j.failAt(suite.Failure{}, failedAt.UnixNano())
		oracle.Equal(c, "remaining", max(0, time.Unix(0, d.RetryAfter).Sub(at)), time.Duration(or(expected.RemainingDelaySeconds, 0))*time.Second)
	}}
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

package policy_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/suite"
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
			oracle.Equal(c, "message", j.says(&d), said(expected.JobFailureMessage))
			if d.Requeue {
				oracle.Equal(c, "counted", d.GlobalUsed == 1, expected.CountsTowardsBackoffLimit)
			} else {
				oracle.Equal(c, "counted", true, expected.CountsTowardsBackoffLimit)
			}
			if expected.Rule != nil && (d.place() < 0 || j.places[d.place()] != *expected.Rule) {
				c.Errorf("rule %s, the row says %d", d.Rule, *expected.Rule)
			}
		},
		Same: func(path string, a, b any) bool {
			return path == "expected.jobFailureMessage" && said(fmt.Sprint(a)) == said(fmt.Sprint(b))
		},
	}
}

// k8sVerdict is what becomes of a Job of which every failed pod is a run of one
// job of ours.
type k8sVerdict struct {
	reason  string // of the Job's condition; "": it goes on
	message string
	counted int64 // failures that were not ignored
}

func (j *k8sJob) together(pods []k8sPod) k8sVerdict {
	var v k8sVerdict
	var n *job
	for i := range pods {
		if !pods[i].failed() {
			continue
		}
		if n == nil {
			n = j.submit(&pods[i], 0, 0)
		}
		d := n.fail(j.failure(&pods[i]))
		if d.Code != policy.RuleIgnore {
			v.counted++
		}
		switch {
		case d.ended || d.Requeue:
		case j.action(&d) == "FailJob":
			v.reason, v.message = "PodFailurePolicy", j.says(&d)
		case d.limited():
			v.reason = "BackoffLimitExceeded"
		default:
			v.reason = d.Code.String()
		}
	}
	return v
}

// says is the message of the Job's condition.
func (v *k8sVerdict) says() string {
	switch v.reason {
	case "BackoffLimitExceeded":
		return "Job has reached the specified backoff limit"
	case "MaxFailedIndexesExceeded":
		return "Job has exceeded the specified maximal number of failed indexes"
	case "FailedIndexes":
		return "Job has failed indexes"
	}
	return v.message
}

// compareConditions: all conditions that a row expects must say our reason.
func (v *k8sVerdict) compareConditions(c *oracle.Check, conditions []k8sCondition) {
	if len(conditions) == 0 {
		oracle.Equal(c, "the Job's reason", v.reason, "")
	}
	for _, condition := range conditions {
		oracle.Equal(c, "the Job's reason", v.reason, condition.Reason)
		oracle.Equal(c, "the Job's message", v.says(), said(condition.Message))
	}
}

// running is how many pods of a Job run after the failures are dealt with.
func (p *k8sPolicy) running(v *k8sVerdict, pods []k8sPod) int64 {
	if v.reason != "" {
		return 0
	}
	n := or(p.Parallelism, 1)
	if p.Completions == nil {
		return n
	}
	left := *p.Completions
	for i := range pods {
		if pods[i].Phase == "Succeeded" {
			left--
		}
	}
	return min(n, left)
}

// failures is how many failed pods Kubernetes counts: with a Job that failed,
// those that still ran end too.
func (v *k8sVerdict) failures(active int64) int64 {
	if v.reason != "" {
		return v.counted + active
	}
	return v.counted
}

func sameSaid(path string, a, b any) bool {
	return strings.HasSuffix(path, ".message") && said(fmt.Sprint(a)) == said(fmt.Sprint(b))
}

func TestOracleK8sSyncPodFailurePolicy(t *testing.T) {
	t.Parallel()
	oracleK8sSyncPodFailurePolicy().Test(t)
}

func oracleK8sSyncPodFailurePolicy() *oracle.Suite {
	return &oracle.Suite{
		File: "k8s_sync_pod_failure_policy.json",
		Same: sameSaid,
		Silent: map[string]string{
			"expected.wantConditions[].type":   "when Kubernetes says it, not what",
			"expected.wantConditions[].status": "always True",
			"expected.wantStatusSucceeded":     "a success is no decision of ours",
		},
		Run: func(c *oracle.Check) {
			var p k8sPolicy
			var prior struct{ Conditions []k8sCondition }
			var observed struct{ Pods []k8sPod }
			var gates k8sGates
			if !c.Inputs(map[string]any{"policy": &p, "prior": &prior, "observed": &observed, "gates": &gates}) || c.LeaveOut(p.reasons(gates, observed.Pods...)...) {
				return
			}
			if c.CannotRun(oracle.Reason{Holds: !slices.ContainsFunc(observed.Pods, func(p k8sPod) bool { return p.failed() }), Why: "no pod that failed"}) {
				return
			}
			var expected struct {
				WantConditions                     []k8sCondition
				WantStatusFailed, WantStatusActive number
			}
			if !c.Expected(&expected) {
				return
			}
			j := p.translate(c)
			v := j.together(observed.Pods)
			v.compareConditions(c, expected.WantConditions)
			active := int64(0)
			for i := range observed.Pods {
				if observed.Pods[i].active() {
					active++
				}
			}
			oracle.Equal(c, "failed", v.failures(active), or(expected.WantStatusFailed, 0))
			oracle.Equal(c, "active", p.running(&v, observed.Pods), or(expected.WantStatusActive, 0))
		},
	}
}

func TestOracleK8sBackoffLimit(t *testing.T) {
	t.Parallel()
	oracleK8sBackoffLimit().Test(t)
}

func oracleK8sBackoffLimit() *oracle.Suite {
	return &oracle.Suite{
		File: "k8s_backoff_limit.json",
		Silent: map[string]string{
			"expected.expectedConditions[].type":   "when Kubernetes says it, not what",
			"expected.expectedConditions[].status": "always True",
			"expected.expectedSucceeded":           "a success is no decision of ours",
		},
		Run: func(c *oracle.Check) {
			var p k8sPolicy
			var observed struct {
				ActivePods, FailedPods number
				ActivePodsPhase        unread
				PodPhase               unread
				RestartCounts          *[]int64
				RestartPolicy          string
				EnableJobManagedBy     unread
			}
			if !c.Inputs(map[string]any{"policy": &p, "observed": &observed}) || c.LeaveOut(p.reasons(k8sGates{})...) {
				return
			}
			failed := or(observed.FailedPods, 0)
			if c.LeaveOut(oracle.Reason{Holds: observed.RestartCounts != nil || observed.RestartPolicy == "OnFailure", Why: "restarts of a container in its pod are no runs"}) || c.CannotRun(
				oracle.Reason{Holds: failed <= 0, Why: "no pod that failed"},
				oracle.Reason{Holds: failed > 1000, Why: "more failures than a test lets fail"},
			) {
				return
			}
			var expected struct {
				ExpectedConditions             []k8sCondition
				ExpectedFailed, ExpectedActive number
			}
			if !c.Expected(&expected) {
				return
			}
			if p.BackoffLimit == nil {
				c.Adapt("no backoffLimit: Kubernetes' default of 6")
				six := int64(6)
				p.BackoffLimit = &six
			}
			j := p.translate(c)
			v := j.together(slices.Repeat([]k8sPod{{Phase: "Failed"}}, int(failed)))
			v.compareConditions(c, expected.ExpectedConditions)
			oracle.Equal(c, "failed", v.failures(or(observed.ActivePods, 0)), or(expected.ExpectedFailed, 0))
			oracle.Equal(c, "active", p.running(&v, nil), or(expected.ExpectedActive, 0))
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
			oracle.Reason{Holds: ignored > 0, Why: "ignored failures: for us each rule's delay grows by its own retries (SEMANTICS 6)"},
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

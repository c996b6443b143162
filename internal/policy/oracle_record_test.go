package policy_test

import (
	"slices"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/authoring/suite"
	"github.com/refloat/refloat/internal/test/oracle"
)

// TestOracleK8sBackoffRecord: how many failures the next delay is for, and from when. The delay doubles, so that it says
// how many failures there were.
func TestOracleK8sBackoffRecord(t *testing.T) {
	t.Parallel()
	oracleK8sBackoffRecord().Test(t)
}

func oracleK8sBackoffRecord() *oracle.Suite {
	return &oracle.Suite{
		File:     "k8s_backoff_record.json",
		Optional: []string{"expected.lastFailureTime"},
		Run: func(c *oracle.Check) {
			var prior struct {
				ConsecutiveFailures number
				LastFailureTime     *string
			}
			var observed struct{ SucceededAt, FailedAt []string }
			if !c.Inputs(map[string]any{"prior": &prior, "observed": &observed}) {
				return
			}
			at := []time.Time{}
			before := or(prior.ConsecutiveFailures, 0)
			unread := before > 0 && prior.LastFailureTime == nil
			for _, text := range append(observed.FailedAt, times(before, prior.LastFailureTime)...) {
				failed, err := time.Parse(time.RFC3339, text)
				unread = unread || err != nil
				at = append(at, failed)
			}
			if c.CannotRun(
				oracle.Reason{Holds: before > maxDoublings/2 || len(at) > maxDoublings/2, Why: "more failures than a test lets fail"},
				oracle.Reason{Holds: unread, Why: "a time that is none, or failures before at no time"},
			) || c.LeaveOut(oracle.Reason{Holds: len(observed.SucceededAt) > 0, Why: "a job of ours ends when a run succeeds: no success comes before a failure of it"}) {
				return
			}
			var expected struct {
				ConsecutiveFailures int64
				LastFailureTime     *string
			}
			if !c.Expected(&expected) {
				return
			}
			slices.SortFunc(at, time.Time.Compare)
			j := newJob(c, suite.Job{},
				policyDoc(obj{"defaultAction": "Retry", "backoff": obj{"initialDelay": "1ms", "maxDelay": "24h", "multiplier": 2}}),
				settingsDoc(obj{"globalMaxRetries": most, "defaultPolicyName": "p"}))
			j.at = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
			failures, last := int64(0), (*string)(nil)
			for _, failed := range at {
				d := j.failAt(suite.Failure{}, failed.UnixNano())
				failures = 1
				for delay := time.Unix(0, d.RetryAfter).Sub(time.Unix(0, d.Decision.Time)); delay > time.Millisecond; delay /= 2 {
					failures++
				}
				text := time.Unix(0, d.Decision.Time).UTC().Format(time.RFC3339Nano)
				last = &text
			}
			oracle.Equal(c, "consecutive failures", failures, expected.ConsecutiveFailures)
			oracle.Equal(c, "last failure", text(last), text(expected.LastFailureTime))
		},
	}
}

// times are n times the same, if there is one.
func times(n int64, at *string) []string {
	if at == nil || n <= 0 || n > maxDoublings {
		return nil
	}
	return slices.Repeat([]string{*at}, int(n))
}

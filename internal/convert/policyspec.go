package convert

import (
	"cmp"
	"math"
	"time"

	"github.com/refloat/refloat/internal/policy/policyfile"
)

// The forms of policies, as their files have them (semantics.md 12.2 and semantics.md 13).
type (
	groupSpec struct {
		MaxRestarts     *uint32      `json:"maxRestarts,omitempty"`
		RestartStrategy string       `json:"restartStrategy,omitempty"`
		Rules           *[]groupRule `json:"rules,omitempty"`
		Unit            *unitSpec    `json:"unit,omitempty"`
		Success         *successSpec `json:"success,omitempty"`
		Parts           []partSpec   `json:"parts,omitempty"`
	}
	successSpec struct {
		Operator string   `json:"operator"`
		Parts    []string `json:"parts,omitempty"`
	}
	unitSpec struct {
		Restarts *restartsSpec `json:"restarts"`
	}
	restartsSpec struct {
		On      string       `json:"on"`
		Limit   uint32       `json:"limit"`
		Backoff *backoffSpec `json:"backoff,omitempty"`
	}
	groupRule struct {
		Name             string       `json:"name"`
		Action           string       `json:"action"`
		CountsTowardsMax *bool        `json:"countsTowardsMax,omitempty"`
		OnReasons        []string     `json:"onReasons,omitempty"`
		OnMessage        *messageSpec `json:"onMessage,omitempty"`
		Parts            []string     `json:"parts,omitempty"`
	}
	messageSpec struct {
		Pattern string `json:"pattern"`
	}
	partSpec struct {
		Name             string        `json:"name"`
		Replicas         int           `json:"replicas"`
		Members          int           `json:"members"`
		MinMembers       int           `json:"minMembers,omitempty"`
		After            []string      `json:"after,omitempty"`
		Parallelism      int           `json:"parallelism,omitempty"`
		RetryLimit       *uint32       `json:"retryLimit,omitempty"`
		CountFailed      bool          `json:"countFailed,omitempty"`
		OnMemberFailure  string        `json:"onMemberFailure"`
		MaxFailedMembers *uint32       `json:"maxFailedMembers,omitempty"`
		Restarts         *restartsSpec `json:"restarts,omitempty"`
		AfterReady       []string      `json:"afterReady,omitempty"`
		SuccessRules     []successRule `json:"successRules,omitempty"`
	}
	successRule struct {
		Indexes string `json:"indexes"`
		Count   *int32 `json:"count,omitempty"`
	}
	retrySpec struct {
		DefaultAction    string       `json:"defaultAction"`
		SelectableByJobs bool         `json:"selectableByJobs"`
		RetryLimit       *uint32      `json:"retryLimit,omitempty"`
		MaxRetries       *uint32      `json:"maxRetries,omitempty"`
		Backoff          *backoffSpec `json:"backoff,omitempty"`
		Replacement      string       `json:"replacement,omitempty"`
		Rules            []retryRule  `json:"rules,omitempty"`
	}
	retryRule struct {
		Name                  string     `json:"name"`
		Action                string     `json:"action"`
		UnitReason            string     `json:"unitReason,omitempty"`
		OnConditions          []string   `json:"onConditions,omitempty"`
		OnExitCodes           *exitCodes `json:"onExitCodes,omitempty"`
		ContainerName         string     `json:"containerName,omitempty"`
		IncludeInitContainers bool       `json:"includeInitContainers,omitempty"`
	}
	exitCodes struct {
		Operator string  `json:"operator"`
		Values   []int32 `json:"values"`
	}
	backoffSpec struct {
		Type         string `json:"type,omitempty"`
		InitialDelay string `json:"initialDelay"`
		MaxDelay     string `json:"maxDelay,omitempty"`
	}
)

func (w *Workload) groupSpec() *groupSpec {
	g := &w.Group
	s := &groupSpec{MaxRestarts: g.MaxRestarts, RestartStrategy: g.RestartStrategy}
	if g.Restarts != nil {
		s.Unit = &unitSpec{g.Restarts.spec()}
	}
	if g.Success != nil {
		s.Success = &successSpec{"All", g.Success.Parts}
		if g.Success.Any {
			s.Success.Operator = "Any"
		}
	}
	if g.HasRules {
		rules := make([]groupRule, 0, len(g.Rules))
		for _, r := range g.Rules {
			out := groupRule{Name: r.Name, Action: r.Action, OnReasons: r.Reasons, Parts: r.Parts}
			if r.Uncounted {
				out.CountsTowardsMax = new(bool)
			}
			if r.Message != "" {
				out.OnMessage = &messageSpec{r.Message}
			}
			rules = append(rules, out)
		}
		s.Rules = &rules
	}
	for i := range w.Parts {
		p := &w.Parts[i]
		out := partSpec{
			Name: p.partName, Replicas: p.Replicas, Members: p.Members(), MinMembers: p.MinMembers, After: p.After,
			RetryLimit: p.RetryLimit, CountFailed: p.CountFailed, OnMemberFailure: "FailUnit", Restarts: p.Restarts.spec(), AfterReady: p.AfterReady,
		}
		if p.Parallelism < out.Members {
			out.Parallelism = p.Parallelism
		}
		if p.Continue {
			out.OnMemberFailure = "Continue"
			// More than can fail is no limit.
			if n := p.MaxFailedMembers; n != nil && uint64(*n) < uint64(out.Members) {
				out.MaxFailedMembers = n
			}
		}
		for _, r := range p.SuccessRules {
			out.SuccessRules = append(out.SuccessRules, successRule{r.Indexes.String(), r.Count})
		}
		s.Parts = append(s.Parts, out)
	}
	return s
}

func (r *Restarts) spec() *restartsSpec {
	if r == nil {
		return nil
	}
	return &restartsSpec{r.On, r.Limit, r.Backoff.spec(&r.Limit)}
}

const (
	actionRetry = "Retry"
	actionFail  = "Fail"
)

func (r *RetryPolicy) spec() *retrySpec {
	s := &retrySpec{DefaultAction: actionRetry, SelectableByJobs: true, RetryLimit: r.Limit, MaxRetries: r.MaxRetries, Replacement: r.Replacement}
	if r.NoRetry {
		s.DefaultAction = cmp.Or(r.Default, actionFail)
	}
	if r.Backoff != nil && (!r.NoRetry || len(r.Rules) > 0) {
		s.Backoff = r.Backoff.spec(r.Limit)
	}
	for i := range r.Rules {
		rule := &r.Rules[i]
		out := retryRule{
			Name: rule.Name, Action: rule.Action, UnitReason: rule.UnitReason, OnConditions: rule.Conditions,
			ContainerName: rule.Container, IncludeInitContainers: rule.InitContainer,
		}
		if rule.ExitCodes != nil {
			out.OnExitCodes = &exitCodes{"In", rule.ExitCodes}
			if rule.NotIn {
				out.OnExitCodes.Operator = "NotIn"
			}
		}
		s.Rules = append(s.Rules, out)
	}
	return s
}

// spec writes a backoff whose maximum is the longest delay that occurs, so that settings cannot shorten it.
func (b *Backoff) spec(limit *uint32) *backoffSpec {
	s := &backoffSpec{Type: "Exponential", InitialDelay: policyfile.Short(b.InitialDelay)}
	longest := b.MaxDelay
	if b.Constant {
		s.Type, longest = "Constant", b.InitialDelay
	} else if limit != nil {
		longest = min(longest, b.delay(*limit))
	}
	s.MaxDelay = policyfile.Short(longest)
	return s
}

// delay is the delay of the n-th retry, but for the maximum.
func (b *Backoff) delay(n uint32) time.Duration {
	d := b.InitialDelay
	for range min(max(n, 1)-1, 63) {
		if d > math.MaxInt64/2 {
			return math.MaxInt64
		}
		d *= 2
	}
	return d
}

package jobdb

import (
	"encoding/json"
	"fmt"

	"github.com/refloat/refloat/internal/policy"
)

// Requests are what a job's pod requests at any one time, as Armada counts it: the sum of the containers that run
// together, or one of its init containers, if that is more.
type Requests struct {
	CPU    int64 `json:"cpu"`    // thousandths of a core
	Memory int64 `json:"memory"` // MiB
	GPU    int64 `json:"gpu"`    // thousandths of a device, of any vendor
}

// EncodeRequests encodes them for a column; unknown ones are "".
func EncodeRequests(r *Requests) string {
	if r == nil {
		return ""
	}
	return encode(r)
}

// DecodeRequests decodes what EncodeRequests wrote.
func DecodeRequests(s string) (*Requests, error) {
	if s == "" {
		return nil, nil
	}
	r := &Requests{}
	if err := json.Unmarshal([]byte(s), r); err != nil {
		return nil, fmt.Errorf("decode what a pod requests: %w", err)
	}
	return r, nil
}

// Cause is why a run failed: what decided on it, Armada's category of its error, and its node. Each may be empty.
type Cause struct{ Policy, Rule, Category, Node string }

type cause struct {
	Policy   text `json:"policy,omitempty"`
	Rule     text `json:"rule,omitempty"`
	Category text `json:"category,omitempty"`
	Node     text `json:"node,omitempty"`
}

// EncodeCause encodes a cause for a column; none is "".
func EncodeCause(c *Cause) string {
	if c == nil {
		return ""
	}
	return encode(cause{text(c.Policy), text(c.Rule), text(c.Category), text(c.Node)})
}

// DecodeCause decodes what EncodeCause wrote.
func DecodeCause(s string) (*Cause, error) {
	if s == "" {
		return nil, nil
	}
	var c cause
	if err := json.Unmarshal([]byte(s), &c); err != nil {
		return nil, fmt.Errorf("decode the cause of a retry: %w", err)
	}
	return &Cause{string(c.Policy), string(c.Rule), string(c.Category), string(c.Node)}, nil
}

// Spent is what runs held, from the lease to the end of each.
type Spent struct {
	Runs    uint64
	Unknown uint64 // of Runs, those of which it is unknown: they are not in the next three
	CPU     int64  // seconds of a thousandth of a core
	Memory  int64  // seconds of a MiB
	GPU     int64  // seconds of a thousandth of a device
}

// What is more than these is taken for unknown: sums stay exact.
const (
	MaxRequest = 100_000_000 // of a job, in the units of Requests
	maxSeconds = 366 * 86400 // of a run
)

// SpentBy is what a run held that has ended. It is unknown if the requests of its job are, or when it was leased or ended.
func SpentBy(requests *Requests, t RunTimes) Spent {
	seconds := float64(t.Ended-t.Leased) / 1e9
	if requests == nil || t.Leased == 0 || t.Ended == 0 || seconds < 0 || seconds > maxSeconds {
		return Spent{Runs: 1, Unknown: 1}
	}
	of := func(amount int64) int64 { return int64(float64(amount)*seconds + .5) }
	return Spent{Runs: 1, CPU: of(requests.CPU), Memory: of(requests.Memory), GPU: of(requests.GPU)}
}

// HeldRun is a run with what its job requests.
type HeldRun struct {
	Run
	Requests *Requests // nil: unknown
}

// Known reports whether it is known of any run.
func (s *Spent) Known() bool { return s.Runs > s.Unknown }

// CPUHours are hours of a core.
func (s *Spent) CPUHours() float64 { return float64(s.CPU) / 1000 / 3600 }

// MemoryHours are hours of a GiB.
func (s *Spent) MemoryHours() float64 { return float64(s.Memory) / 1024 / 3600 }

// GPUHours are hours of a device.
func (s *Spent) GPUHours() float64 { return float64(s.GPU) / 1000 / 3600 }

// Add adds what other runs held.
func (s *Spent) Add(o Spent) {
	s.Runs, s.Unknown, s.CPU, s.Memory, s.GPU = s.Runs+o.Runs, s.Unknown+o.Unknown, s.CPU+o.CPU, s.Memory+o.Memory, s.GPU+o.GPU
}

// CostKind is how a run ended that a Cost is about. The numbers are stored: never change one.
type CostKind uint8

// The kinds of costs. A retry that failed counts twice: as a failed run of its own cause, and as a retry of the cause
// that it was granted for.
const (
	FailedRun      CostKind = iota // failed, whether or not it was retried
	RetrySucceeded                 // was a retry, and succeeded
	RetryLost                      // was a retry, and failed or was cancelled
)

var costKinds = [...]string{"failed", "retry_succeeded", "retry_lost"}

// String returns the kind's name.
func (k CostKind) String() string { return policy.NameAt(costKinds[:], uint8(k), "CostKind") }

// Cost is what one run held in vain, or as a retry.
type Cost struct {
	Partition int
	Ended     int64 // Unix nanoseconds; 0: unknown
	Kind      CostKind
	Queue     string
	Cause     // of a failed run; of a retry, that of the failure that it was granted for
	Spent
}

// CostKeys are what costs are summed by.
var CostKeys = []string{"queue", "policy", "rule", "node", "category"}

// CostFilter selects sums of costs.
type CostFilter struct {
	By  string  // one of CostKeys
	Key *string // only of this queue, policy and so on; nil: of each
	// From is the first day, To the one after the last; 0: no limit.
	From, To int64
}

// DayOf returns the day of a time in Unix nanoseconds, in UTC, counted from 1970.
func DayOf(time int64) int64 { return HourOf(time) / 24 }

// CostSum is what the runs of one kind and key held.
type CostSum struct {
	Key  string // of a rule POLICY/RULE; "": none, or unknown
	Kind CostKind
	Spent
}

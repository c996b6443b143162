package convert

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// flowRetryPolicy is the retryPolicy of a JobFlow and of its steps, as proposed (seeds/004).
type flowRetryPolicy struct {
	MaxRetries *int32       `json:"maxRetries,omitempty"`
	Policy     string       `json:"policy,omitempty"`
	Backoff    *flowBackoff `json:"backoff,omitempty"`
}

type flowBackoff struct {
	Type      string        `json:"type,omitempty"`
	BaseDelay *flowDuration `json:"baseDelay,omitempty"`
	MaxDelay  *flowDuration `json:"maxDelay,omitempty"`
}

// flowDuration is a duration as Kubernetes writes it. Days, which the proposal's own example has, are read too.
type flowDuration struct {
	time.Duration
	days bool
}

// UnmarshalJSON reads a duration; its error is a mistake with its fix.
func (f *flowDuration) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return &mistake{"not a duration", `write a duration with a unit, such as "30s"`}
	}
	var why, fix string
	if f.Duration, f.days, why, fix = parseFlowDuration(s); why != "" {
		return &mistake{why, fix}
	}
	return nil
}

// mistake is an error of a value that knows how to correct it.
type mistake struct{ why, fix string }

func (m *mistake) Error() string { return m.why }

// The defaults of retryPolicy.
const (
	flowMaxRetries = 0
	flowPolicy     = "OnFailure"
	flowType       = "Exponential"
	flowBaseDelay  = 30 * time.Second
	flowMaxDelay   = 5 * time.Minute
)

var durationForm = regexp.MustCompile(`^([0-9.]+)\s*([a-zA-Zµ]+)$`)

// parseFlowDuration reads a duration. A unit that nobody knows is a mistake with its fix.
func parseFlowDuration(s string) (d time.Duration, days bool, why, fix string) {
	d, err := time.ParseDuration(s)
	if err == nil && d >= 0 {
		if d%time.Millisecond != 0 {
			return 0, false, "not a whole number of milliseconds", "write whole milliseconds"
		}
		return d, false, "", ""
	}
	if err == nil {
		return 0, false, "a delay below zero", "write a duration from 0s on"
	}
	fix = `write a duration with a unit, such as "30s"`
	m := durationForm.FindStringSubmatch(s)
	if m == nil {
		return 0, false, "not a duration", fix
	}
	if m[2] == "d" {
		const most = 100 * 365
		n, err := strconv.ParseUint(m[1], 10, 32)
		if err != nil || n > most {
			return 0, false, "not a number of days", `write hours, such as "36h"`
		}
		return time.Duration(n) * 24 * time.Hour, true, "", ""
	}
	units := map[string]string{
		"sec": "s", "secs": "s", "second": "s", "seconds": "s", "min": "m", "mins": "m", "minute": "m", "minutes": "m",
		"hour": "h", "hours": "h", "hr": "h", "hrs": "h", "msec": "ms", "millisecond": "ms", "milliseconds": "ms",
	}
	if unit := units[strings.ToLower(m[2])]; unit != "" {
		fix = "write " + m[1] + unit
	}
	return 0, false, fmt.Sprintf("no unit %s", shown(m[2])), fix
}

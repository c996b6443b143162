package app

import (
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/refloat/refloat/internal/sink"
)

// RetainUsage is the help text of the flag.
const RetainUsage = "how long the job database keeps a job that is over: a duration such as 720h, but at least the horizon of the policies; " +
	"forever; or auto: where Armada's tables are written too, as long as Armada's own pruner keeps it there, else forever"

// Retain says how long the job database keeps a job that is over. The zero value is auto.
type Retain struct {
	For     time.Duration
	Forever bool
}

// ParseRetain parses auto, forever, or a duration of more than 0.
func ParseRetain(text string) (Retain, error) {
	switch text {
	case "auto":
		return Retain{}, nil
	case "forever":
		return Retain{Forever: true}, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return Retain{}, fmt.Errorf("%q: want a duration of more than 0 such as 720h, forever or auto", text)
	}
	return Retain{For: d}, nil
}

// retention returns what the writer does.
func (r Retain) retention(mirrored bool) sink.Retention {
	switch {
	case r.Forever:
		return sink.Retention{}
	case r.For > 0:
		return sink.Retention{For: r.For}
	}
	return sink.Retention{FollowArmada: mirrored}
}

// pruned counts what is pruned.
func (m *Metrics) pruned(p sink.Prune) {
	partition := strconv.Itoa(p.Partition)
	m.prunedJobs.WithLabelValues(partition).Add(float64(p.Jobs))
	m.prunedRows.WithLabelValues(partition).Add(float64(p.Rows))
}

// retainedLonger warns once for each horizon that is longer than the retention.
func (n *node) retainedLonger() func(partition int, horizon time.Duration) {
	var mu sync.Mutex
	var last time.Duration
	return func(partition int, horizon time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		if horizon == last {
			return
		}
		last = horizon
		n.Log.Warn("--retain is shorter than the horizon of the policies in force, within which late events and decisions may still refer to a job: jobs are kept for the horizon",
			slog.Int("partition", partition), slog.Duration("retain", n.Retain.For), slog.Duration("horizon", horizon))
	}
}

package app

import (
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/refloat/refloat/internal/armada/controlplane"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policylog"
)

// refuse records why a partition is stopped until an operator acts; nil: it is not.
func refuse(refused *prometheus.GaugeVec, partition int, err error) {
	p := strconv.Itoa(partition)
	refused.DeletePartialMatch(map[string]string{"partition": p})
	if err != nil {
		refused.WithLabelValues(p, refusal(err)).Set(1)
	}
}

// refusal maps an error to a metric label.
func refusal(err error) string {
	for _, r := range []struct {
		class error
		label string
	}{
		{controlplane.ErrTaken, "taken"},
		{evaluator.ErrHistory, "history"},
		{evaluator.ErrRepartitioned, "partitions"},
		{evaluator.ErrEmptied, "emptied"},
		{evaluator.ErrDiverged, "diverged"},
		{chain.ErrNewer, "newer"},
		{policylog.ErrUnusable, "policies"},
		{chain.ErrMissing, "missing"},
		{eventlog.ErrTrimmed, "trimmed"},
		{eventlog.ErrCorrupt, "corrupt"},
	} {
		if errors.Is(err, r.class) {
			return r.label
		}
	}
	return "other"
}

package jobs_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/internal/api/jobs"
	"github.com/refloat/refloat/internal/api/jobs/pb"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
)

// costs is a job database with kept sums of three keys.
type costs struct {
	jobdb.Queries
	asked *[]jobdb.CostFilter
}

func (c costs) Costs(f jobdb.CostFilter) (all []jobdb.CostSum, _ error) {
	*c.asked = append(*c.asked, f)
	for i, key := range []string{"", "a", "b"} {
		for kind := jobdb.FailedRun; kind <= jobdb.RetryLost; kind++ {
			n := int64(10*i) + int64(kind)
			all = append(all, jobdb.CostSum{Key: key, Kind: kind, Spent: jobdb.Spent{Runs: uint64(n + 5), Unknown: uint64(n), CPU: 7 * n, Memory: 11 * n, GPU: 13 * n}})
		}
	}
	return all, nil
}

// TestTopCost: costs come through the API as the command line shows them without a server, and the same is asked for.
func TestTopCost(t *testing.T) {
	t.Parallel()
	var asked []jobdb.CostFilter
	local := &query.Source{Jobs: func(_ context.Context, read func(jobdb.Queries) error) error { return read(costs{asked: &asked}) }}
	served := servedBy(t, &jobs.Service{Source: local, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	remote := &jobs.Client{Call: func(ctx context.Context, call func(context.Context, pb.JobsClient) error) error {
		return call(ctx, served)
	}}
	empty, rule := "", "p/r"
	for _, question := range []query.CostQuestion{
		{By: "queue", Limit: 2}, {By: "node", Key: &empty}, {By: "rule", Key: &rule, Since: 86400e9 * 20_000, Until: 86400e9 * 20_001},
	} {
		asked = nil
		want, err := local.TopCost(t.Context(), question)
		if err != nil {
			t.Fatal(err)
		}
		got, err := remote.TopCost(t.Context(), question)
		if diff := cmp.Diff(want, got); diff != "" || err != nil || len(got) == 0 {
			t.Errorf("%+v: %v %s", question, err, diff)
		}
		if diff := cmp.Diff(asked[0], asked[1]); diff != "" {
			t.Error(diff)
		}
	}
	if _, err := remote.TopCost(t.Context(), query.CostQuestion{By: "nod"}); err == nil {
		t.Error("by nod: no error")
	}
}

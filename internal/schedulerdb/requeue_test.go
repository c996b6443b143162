package schedulerdb_test

import (
	"regexp"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/internal/schedulerdb"
	"github.com/refloat/refloat/internal/schedulerdb/pb"
)

// TestWaitingLabel: the scheduler's report shows the key alone, so it says why the
// job waits; and it is a key that Kubernetes and Armada take.
func TestWaitingLabel(t *testing.T) {
	t.Parallel()
	valid := regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)
	if key := schedulerdb.WaitingLabel; !valid.MatchString(key) || !regexp.MustCompile(`waits.*retry-time`).MatchString(key) {
		t.Errorf("%q is no label key, or does not say what is waited for", key)
	}
}

// TestWaitEnds: whichever key a wait was written with, its end takes it away and
// leaves the job's own selectors; and all waiting jobs have the same one.
func TestWaitEnds(t *testing.T) {
	t.Parallel()
	with := func(selector map[string]string) []byte {
		info, err := proto.Marshal(&pb.JobSchedulingInfo{ObjectRequirements: []*pb.ObjectRequirements{{
			PodRequirements: &pb.PodRequirements{NodeSelector: selector},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	for _, key := range []string{"refloat.github.io/retry", schedulerdb.WaitingLabel, "other"} {
		for _, waiting := range []bool{true, false} {
			out, err := schedulerdb.Requirements(with(map[string]string{"own": "yes", key: "x"}), schedulerdb.Placement{Waiting: waiting, Version: 3})
			if err != nil {
				t.Fatal(err)
			}
			var info pb.JobSchedulingInfo
			if err := proto.Unmarshal(out, &info); err != nil {
				t.Fatal(err)
			}
			got := info.ObjectRequirements[0].GetPodRequirements().NodeSelector
			want := 1 // own
			if waiting {
				want++
			}
			if key == "other" {
				want++
			}
			if len(got) != want || got["own"] != "yes" || waiting != (got[schedulerdb.WaitingLabel] == schedulerdb.WaitingValue) {
				t.Errorf("from %q, waiting %v: %v", key, waiting, got)
			}
		}
	}
}

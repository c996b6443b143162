package writer_test

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/armada/writer"
	schedulingpb "github.com/refloat/refloat/internal/schedulerdb/pb"
)

// TestCopies: copies have the format of Armada's own retries. Each job of this
// recording has one run, leased as version 1. If Armada then failed the job anyway, it
// is queued and copied once more, as version 3.
func TestCopies(t *testing.T) {
	t.Parallel()
	h := recorded(t, "preempted", forRecordings)
	for mode, as := range map[writer.Mode]string{writer.HoldBack: "HoldBack", writer.Direct: "Direct"} {
		t.Run(as, func(t *testing.T) {
			left := h.play(t, mode, replay{rows: 5000})
			requeues, preempted := 0, 0
			for _, line := range left.copies {
				f := strings.Fields(line)
				payload, err := hex.DecodeString(f[len(f)-1])
				if err != nil {
					t.Fatal(err)
				}
				var seq pb.EventSequence
				if err := proto.Unmarshal(payload, &seq); err != nil {
					t.Fatal(err)
				}
				if f[1] != seq.JobSetName || seq.Queue == "" || !strings.HasPrefix(f[2], "[{refloat-copy") {
					t.Errorf("%s, for %s/%s", strings.Join(f[:len(f)-1], " "), seq.Queue, seq.JobSetName)
				}
				failed := seq.Events[0].GetJobErrors()
				var why pb.Error
				if err := proto.Unmarshal(raw(t, failed.GetErrors()[0]), &why); err != nil {
					t.Fatal(err)
				}
				if policy := why.RetryPolicyName; policy != "much" && policy != "little" || failed.JobId == "" {
					t.Errorf("job %s failed by policy %q", failed.JobId, policy)
				}
				if strings.Contains(string(raw(t, failed.GetErrors()[0])), "Preempted") {
					preempted++
				}
				switch {
				case len(seq.Events) == 1: // failed for good
					if !why.Terminal || mode != writer.Direct {
						t.Errorf("job %s failed for good: %v", failed.JobId, &why)
					}
				case why.Terminal:
					t.Errorf("job %s failed for good, and is requeued", failed.JobId)
				default:
					requeues++
					checkRequeued(t, failed.JobId, seq.Events[1].GetJobRequeued())
				}
			}
			if requeues == 0 || preempted == 0 {
				t.Errorf("%d requeues, %d of preempted runs", requeues, preempted)
			}
		})
	}
}

func raw(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func checkRequeued(t *testing.T, job string, r *pb.JobRequeued) {
	t.Helper()
	var info schedulingpb.JobSchedulingInfo
	if err := proto.Unmarshal(r.GetSchedulingInfo(), &info); err != nil {
		t.Fatal(err)
	}
	if r.GetJobId() != job || r.GetUpdateSequenceNumber() != 2 && r.GetUpdateSequenceNumber() != 3 || len(info.ObjectRequirements) != 1 || info.ObjectRequirements[0].GetPodRequirements() == nil {
		t.Errorf("job %s is requeued as %s", job, fmt.Sprint(r))
	}
}

package policylog_test

import (
	"testing"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
)

// TestInvisibleInLog checks that a generation which an earlier version wrote, with invisible characters in names, stays
// in force, and that its queue can be killed.
func TestInvisibleInLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	madeOf := uint64(0)
	const content = `{"policies":[{"name":"p","spec":{"rules":[{"action":"Retry","onFailureCategory":["gpu` + "\u00ad" + `"]}]}}],` +
		`"queues":[{"name":"m` + "\u200b" + `l","retryPolicies":["p"]}],"version":1}`
	if err := w.append(t.Context(), generation(t, []byte(content), &pb.PolicyGeneration{MadeOf: &madeOf}, false)); err != nil {
		t.Fatal(err)
	}
	log, err := policylog.Open(w.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if err := log.Refresh(); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := log.Held(1); !ok || err != nil {
		t.Fatalf("held: %v, %v", ok, err)
	}
	kill := policylog.Override{Override: policyfile.Override{Queue: "m\u200bl", Kill: true}, Author: "ann", Reason: "x"}
	for _, e := range []policylog.Edit{
		{Author: "ann", Urgent: true, Make: func(s policylog.Snapshot) (*policyfile.Set, []policylog.Override, error) {
			return s.Base, []policylog.Override{kill}, nil
		}},
		{Author: "ann", Make: putting("other", "")}, // the override is applied again
	} {
		if v, err := w.store(w.append).Do(t.Context(), e); err != nil || !v.Made {
			t.Fatalf("change: %v, %v", v, err)
		}
	}
}

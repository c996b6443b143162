package cutover

import (
	"strings"
	"testing"
)

// TestNotThere: positions that the topic does not hold, or does not hold yet.
func TestNotThere(t *testing.T) {
	t.Parallel()
	l := &inspector{}
	for markDelete, want := range map[string]string{
		"10:0": "no ledger of the topic holds position 10:0",
		"5:2":  "5:2 is past the end of its ledger, which has 2 entries",
		"9:0":  "9:0 is past the end of its ledger, which has 0 entries",
	} {
		at, err := l.canonical(t.Context(), []ledger{{5, 2}, {9, 0}}, 0, markDelete)
		if err != nil || at.Why == nil || !strings.Contains(at.Why.Error(), want) {
			t.Errorf("%s: %+v, %v; want %s", markDelete, at, err, want)
		}
		s := &State{Subscription: "s", Partitions: []Partition{{Applied: at}}}
		if found := checkStart(s); len(found) != 1 || !found[0].Refuses || !strings.Contains(found[0].What, want) || found[0].Fix == "" {
			t.Errorf("%s: findings %+v", markDelete, found)
		}
	}
	if _, err := l.canonical(t.Context(), nil, 0, "latest"); err == nil {
		t.Error("a position that is none was understood")
	}
}

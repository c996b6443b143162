package evaluator

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/projection"
)

// TestMeta: what is written is read back, as is what earlier builds wrote.
func TestMeta(t *testing.T) {
	t.Parallel()
	want := meta{
		Positions: follow.Positions{
			Chain:     chain.End{Seq: 1, Link: chain.Hash{2}, Epoch: 3, Owner: chain.OwnerID{4}, InTo: eventlog.Position{Ledger: 5, Entry: 6, Batch: -1}},
			Decisions: eventlog.Position{Ledger: 1 << 40, Entry: 8, Batch: 9},
		},
		Progress:  Progress{Decisions: 10, Running: chain.Hash{11}, Generation: 12, PolicySet: [32]byte{13}, Semantics: 14, Partitions: 15},
		Watermark: projection.NoWatermark, Horizon: 17, Rebuilding: true,
	}
	now, err := want.encode()
	if err != nil {
		t.Fatal(err)
	}
	earlier, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"now": now, "earlier": append([]byte{metaJSON}, earlier...)} {
		if got, err := decodeMeta(b); err != nil || got != want {
			t.Errorf("%s: read %+v (%v), want %+v", name, got, err, want)
		}
	}
	for name, b := range map[string][]byte{
		"nothing": {}, "later": append([]byte{metaBinary + 1}, now[1:]...), "short": now[:len(now)-1], "long": append(now, 0), "bad JSON": {metaJSON, '{'},
	} {
		if got, err := decodeMeta(b); !errors.Is(err, projection.ErrCorrupt) {
			t.Errorf("%s: read %+v (%v), want ErrCorrupt", name, got, err)
		}
	}
}

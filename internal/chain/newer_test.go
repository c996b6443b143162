package chain_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/refloat/refloat/internal/chain"
)

// TestNewerProgram: what the owner in force wrote and this program cannot read stops
// the reader; what does not follow from the chain is a stranger's, and is ignored.
func TestNewerProgram(t *testing.T) {
	t.Parallel()
	claim := &chain.Envelope{Seq: 1, Epoch: 1, Owner: chain.OwnerID{1}, InFrom: chain.Beginning.InTo, InTo: chain.Beginning.InTo}
	claim.Records = [][]byte{chain.AppendRecord(nil, &chain.OwnerClaim{Epoch: 1, Owner: claim.Owner})}
	acc, why, err := chain.Beginning.Offer(claim.Append(nil))
	if err != nil || acc == nil {
		t.Fatalf("the claim: %v, %v", why, err)
	}
	unknownKind := protowire.AppendBytes(protowire.AppendTag(nil, 99, protowire.BytesType), []byte("x"))
	unknownField := protowire.AppendBytes(protowire.AppendTag(nil, 7, protowire.BytesType), protowire.AppendVarint(protowire.AppendTag(nil, 50, protowire.VarintType), 1))
	newest := chain.AppendRecord(nil, &chain.SemanticsActivated{Version: chain.NewestSemantics})
	next := chain.AppendRecord(nil, &chain.SemanticsActivated{Version: chain.NewestSemantics + 1})
	tests := []struct {
		name    string
		records [][]byte
		change  func(e *chain.Envelope)
		newer   string // in the error
		ignored chain.Ignored
	}{
		{name: "the newest version", records: [][]byte{newest}},
		{name: "the next version", records: [][]byte{next}, newer: fmt.Sprintf("activates version %d of the semantics, this program knows versions up to %d", chain.NewestSemantics+1, chain.NewestSemantics)},
		{name: "the next version, with a record of its own", records: [][]byte{next, unknownKind}, newer: fmt.Sprintf("activates version %d", chain.NewestSemantics+1)},
		{name: "a record of an unknown kind", records: [][]byte{unknownKind}, newer: "unknown kind 99"},
		{name: "a record with an unknown field", records: [][]byte{unknownField}, newer: "unknown field 50"},
		{name: "damaged bytes", records: [][]byte{{0xff}}, ignored: chain.Malformed},
		{name: "of another owner", records: [][]byte{unknownKind}, change: func(e *chain.Envelope) { e.Owner = chain.OwnerID{2} }, ignored: chain.Malformed},
		{name: "the next version, behind another envelope", records: [][]byte{next}, change: func(e *chain.Envelope) { e.Link[0]++ }, ignored: chain.WrongLink},
		{name: "behind another envelope", records: [][]byte{unknownKind}, change: func(e *chain.Envelope) { e.Link[0]++ }, ignored: chain.Malformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := &chain.Envelope{
				Seq: 2, Link: acc.End.Link, Epoch: 1, Owner: claim.Owner, InFrom: acc.End.InTo, InTo: acc.End.InTo, Records: tt.records,
			}
			if tt.change != nil {
				tt.change(e)
			}
			got, why, err := acc.End.Offer(e.Append(nil))
			if tt.newer != "" {
				if !errors.Is(err, chain.ErrNewer) || !strings.Contains(err.Error(), tt.newer) {
					t.Fatalf("%v, want ErrNewer with %q", err, tt.newer)
				}
				return
			}
			if err != nil || why != tt.ignored || (got == nil) != (tt.ignored != chain.NotIgnored) {
				t.Fatalf("accepted %v, ignored as %v, error %v; want it ignored as %v", got, why, err, tt.ignored)
			}
		})
	}
}

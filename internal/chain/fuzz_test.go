package chain_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
)

// samples are one record of each kind, and an envelope of each sort.
func samples() (records, envelopes [][]byte) {
	at := eventlog.Position{Ledger: 5, Entry: 10}
	for _, r := range []chain.Record{
		&chain.Decision{
			Requeue: true, Number: 1, Position: at, Queue: "q", JobSet: "s", JobID: "j", RunID: "r", RunIndex: 1, Time: 1e18,
			Code: policy.RuleRetry, Policy: "infra", Rule: "#0", RuleID: "#abc", LimitFrom: policy.FromRule, RuleUsed: 1, RuleLimit: 3,
			GlobalUsed: 1, GlobalLimit: 20, Container: "main", Matcher: policy.OnExitCodes, Skipped: []string{"x", ""}, Shadow: true,
			Generation: 1, DelayMS: 30_000, RetryAfter: 1e18 + 30e9, ReadyAfter: 1e18, PodName: "armada-j-0-1", AvoidNodes: []string{"n"},
		},
		&chain.Decision{Position: eventlog.Start},
		&chain.NotDecided{Position: at, JobID: "j", RunID: "r", Reason: chain.Ended, Time: -1},
		&chain.Parked{Position: at, Reason: events.NoJob, Event: 2, Raw: []byte("raw")},
		&chain.RetryReady{Position: at, JobID: "j", RunID: "r", RetryAfter: 1},
		&chain.PolicyActivated{Generation: 1, HorizonMS: 86_400_000},
		&chain.SemanticsActivated{Version: 1},
		&chain.OwnerClaim{Epoch: 2, LastSeq: 1},
	} {
		b := chain.AppendRecord(nil, r)
		e := chain.Envelope{Seq: 2, Epoch: 2, InFrom: eventlog.Start, InTo: at, InCount: 1, Records: [][]byte{b}}
		records, envelopes = append(records, b), append(envelopes, e.Append(nil))
	}
	e := chain.Envelope{Seq: 1, Epoch: 1, InFrom: eventlog.Start, InTo: eventlog.Start}
	return records, append(envelopes, e.Append(nil))
}

// FuzzDecodeRecord: no bytes panic, and those that are a record are its one encoding.
func FuzzDecodeRecord(f *testing.F) {
	records, _ := samples()
	for _, b := range records {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := chain.DecodeRecord(b)
		if err != nil {
			if !errors.Is(err, chain.ErrMalformed) {
				t.Fatalf("DecodeRecord: %v, want ErrMalformed", err)
			}
			return
		}
		if got := chain.AppendRecord(nil, r); !bytes.Equal(got, b) {
			t.Fatalf("encoded again: %x, want %x", got, b)
		}
	})
}

// FuzzDecodeEnvelope: no bytes panic, those that are an envelope are its one encoding, and none is accepted twice.
func FuzzDecodeEnvelope(f *testing.F) {
	_, envelopes := samples()
	for _, b := range envelopes {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		env, err := chain.DecodeEnvelope(b)
		if err != nil {
			if !errors.Is(err, chain.ErrMalformed) {
				t.Fatalf("DecodeEnvelope: %v, want ErrMalformed", err)
			}
			return
		}
		if got := env.Append(nil); !bytes.Equal(got, b) {
			t.Fatalf("encoded again: %x, want %x", got, b)
		}
		if _, err := env.Decode(); err != nil && !errors.Is(err, chain.ErrMalformed) {
			t.Fatalf("Decode: %v, want ErrMalformed", err)
		}
		before := chain.End{Seq: env.Seq - 1, Link: env.Link, Epoch: env.Epoch, Owner: env.Owner, InTo: env.InFrom}
		acc, _, err := before.Offer(b)
		if err != nil || acc == nil {
			return
		}
		if again, why, err := acc.End.Offer(b); again != nil || why == chain.NotIgnored || err != nil {
			t.Fatalf("offered again: %v, %v, %v", again, why, err)
		}
	})
}

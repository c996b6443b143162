package chain_test

import (
	"pgregory.net/rapid"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
)

// Tests that draw from these are not parallel: rapid writes into a generator that
// it names for the first time.

// text is what stands in ids and names: valid UTF-8, often empty.
var text = rapid.OneOf(rapid.Just(""), rapid.StringN(0, 12, 40))

var texts = rapid.Custom(func(t *rapid.T) []string {
	s := rapid.SliceOfN(text, 0, 3).Draw(t, "strings")
	if len(s) == 0 {
		return nil
	}
	return s
})

var numbers = rapid.Custom(func(t *rapid.T) []uint32 {
	n := rapid.SliceOfN(small, 0, 3).Draw(t, "numbers")
	if len(n) == 0 {
		return nil
	}
	return n
})

var position = rapid.Custom(func(t *rapid.T) eventlog.Position {
	if rapid.IntRange(0, 4).Draw(t, "start") == 0 {
		return eventlog.Start
	}
	small := rapid.Int64Range(-1, 2)
	return eventlog.Position{
		Ledger: rapid.OneOf(small, rapid.Int64()).Draw(t, "ledger"),
		Entry:  rapid.OneOf(small, rapid.Int64()).Draw(t, "entry"),
		Batch:  rapid.OneOf(rapid.Int32Range(-1, 2), rapid.Int32()).Draw(t, "batch"),
	}
})

var nanos = rapid.OneOf(rapid.Just(int64(0)), rapid.Int64())

var number = rapid.OneOf(rapid.Uint64Range(0, 2), rapid.Uint64())

var small = rapid.OneOf(rapid.Uint32Range(0, 2), rapid.Uint32())

func draw[E ~uint8](t *rapid.T, label string, known E) E {
	return E(rapid.OneOf(rapid.Uint8Range(0, uint8(known)), rapid.Uint8()).Draw(t, label))
}

func fill(t *rapid.T, label string, dst []byte) {
	copy(dst, rapid.SliceOfN(rapid.Byte(), len(dst), len(dst)).Draw(t, label))
}

// record is any record that the format can hold.
var record = rapid.OneOf(
	rapid.Custom(func(t *rapid.T) chain.Record { return decision(t) }),
	rapid.Custom(func(t *rapid.T) chain.Record {
		return &chain.NotDecided{
			Position: position.Draw(t, "position"), Queue: text.Draw(t, "queue"), JobSet: text.Draw(t, "set"),
			JobID: text.Draw(t, "job"), RunID: text.Draw(t, "run"), Reason: draw(t, "reason", chain.Absorbed), Time: nanos.Draw(t, "time"),
		}
	}),
	rapid.Custom(func(t *rapid.T) chain.Record {
		r := &chain.Parked{Position: position.Draw(t, "position"), Reason: draw(t, "reason", events.TooLarge), Event: small.Draw(t, "event")}
		r.Raw = append(r.Raw, rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "raw")...) // lengths of one byte and of two
		if rapid.Bool().Draw(t, "brief") {
			return r.Brief()
		}
		return r
	}),
	rapid.Custom(func(t *rapid.T) chain.Record {
		return &chain.RetryReady{Position: position.Draw(t, "position"), JobID: text.Draw(t, "job"), RunID: text.Draw(t, "run"), RetryAfter: nanos.Draw(t, "after")}
	}),
	rapid.Custom(func(t *rapid.T) chain.Record {
		r := &chain.PolicyActivated{Generation: number.Draw(t, "generation"), HorizonMS: nanos.Draw(t, "horizon")}
		fill(t, "digest", r.Digest[:])
		return r
	}),
	rapid.Custom(func(t *rapid.T) chain.Record {
		r := &chain.GroupBound{
			Position: position.Draw(t, "position"), Queue: text.Draw(t, "queue"), JobSet: text.Draw(t, "set"), Group: text.Draw(t, "group"),
			JobID: text.Draw(t, "job"), Policy: text.Draw(t, "policy"), MaxRestarts: small.Draw(t, "max"),
		}
		fill(t, "digest", r.Digest[:])
		for range rapid.IntRange(0, 3).Draw(t, "parts") {
			p := policy.ShapePart{
				Name: text.Draw(t, "part"), Replicas: small.Draw(t, "replicas"), Members: small.Draw(t, "members"), MinMembers: small.Draw(t, "min"),
				After: numbers.Draw(t, "after"), Parallelism: small.Draw(t, "parallelism"), AfterReady: numbers.Draw(t, "afterReady"),
			}
			for range rapid.IntRange(0, 2).Draw(t, "rules") {
				var indexes policy.Indexes
				for _, i := range numbers.Draw(t, "indexes") {
					indexes.Add(i)
				}
				p.SuccessRules = append(p.SuccessRules, policy.SuccessRule{Indexes: indexes, Count: small.Draw(t, "count")})
			}
			r.Shape.Parts = append(r.Shape.Parts, p)
		}
		r.Shape.Success = policy.Success{Any: rapid.Bool().Draw(t, "any"), Parts: numbers.Draw(t, "success")}
		return r
	}),
	rapid.Custom(func(t *rapid.T) chain.Record {
		return &chain.GroupFinding{
			Position: position.Draw(t, "position"), Queue: text.Draw(t, "queue"), JobSet: text.Draw(t, "set"), Group: text.Draw(t, "group"),
			JobID: text.Draw(t, "job"), Reason: draw(t, "reason", policy.NotOneUnit),
		}
	}),
	rapid.Custom(func(t *rapid.T) chain.Record {
		return &chain.MemberChange{
			Change:   rapid.SampledFrom([]chain.Change{chain.MemberHeld, chain.MemberReleased, chain.MemberRestart, chain.MemberStopped, chain.MemberJoined}).Draw(t, "change"),
			Position: position.Draw(t, "position"), Queue: text.Draw(t, "queue"), JobSet: text.Draw(t, "set"),
			JobID: text.Draw(t, "job"), RunID: text.Draw(t, "run"), Member: *member(t), RetryAfter: nanos.Draw(t, "after"),
		}
	}),
	rapid.Custom(func(t *rapid.T) chain.Record {
		return &chain.UnitEnded{
			Position: position.Draw(t, "position"), Queue: text.Draw(t, "queue"), JobSet: text.Draw(t, "set"),
			Member: *member(t), Succeeded: rapid.Bool().Draw(t, "succeeded"), Verdict: *groupVerdict(t),
		}
	}),
	rapid.Custom(func(t *rapid.T) chain.Record {
		return &chain.GroupEnded{
			Position: position.Draw(t, "position"), Queue: text.Draw(t, "queue"), JobSet: text.Draw(t, "set"), Group: text.Draw(t, "group"),
			State: draw(t, "state", policy.GroupHalted), Reason: draw(t, "reason", policy.ReachedMaxRestarts), Rule: text.Draw(t, "rule"),
		}
	}),
	rapid.Custom(func(t *rapid.T) chain.Record {
		r := &chain.OrderAnswered{
			Position: position.Draw(t, "position"), Queue: text.Draw(t, "queue"), JobSet: text.Draw(t, "set"), JobID: text.Draw(t, "job"), RunID: text.Draw(t, "run"),
			OrderID: text.Draw(t, "order"), Action: draw(t, "action", policy.OrderStart), Author: text.Draw(t, "author"), Reason: text.Draw(t, "reason"),
			Time: nanos.Draw(t, "time"), Refusal: draw(t, "refusal", policy.RefusedKill), Generation: number.Draw(t, "generation"),
			RetryAfter: nanos.Draw(t, "after"), PodName: text.Draw(t, "pod"), AvoidNodes: texts.Draw(t, "avoid"), NodesLeftOut: small.Draw(t, "left out"),
		}
		r.ReadyAfter = rapid.OneOf(rapid.Just(r.RetryAfter), nanos).Draw(t, "ready")
		fill(t, "digest", r.PolicySet[:])
		return r
	}),
	rapid.Custom(func(t *rapid.T) chain.Record { return &chain.SemanticsActivated{Version: small.Draw(t, "version")} }),
	rapid.Custom(func(t *rapid.T) chain.Record {
		r := &chain.OwnerClaim{Epoch: number.Draw(t, "epoch"), LastSeq: number.Draw(t, "seq"), Partitions: small.Draw(t, "partitions")}
		fill(t, "owner", r.Owner[:])
		fill(t, "link", r.LastLink[:])
		return r
	}),
	rapid.Custom(func(t *rapid.T) chain.Record {
		return &chain.StateRebuilt{By: text.Draw(t, "by"), From: position.Draw(t, "from")}
	}),
	rapid.Custom(func(t *rapid.T) chain.Record { return &chain.HistoryAccepted{By: text.Draw(t, "by")} }),
)

func decision(t *rapid.T) *chain.Decision {
	d := &chain.Decision{
		Requeue: rapid.Bool().Draw(t, "requeue"), Number: number.Draw(t, "number"), Position: position.Draw(t, "position"),
		Queue: text.Draw(t, "queue"), JobSet: text.Draw(t, "set"), JobID: text.Draw(t, "job"), RunID: text.Draw(t, "run"),
		RunIndex: small.Draw(t, "index"), Time: nanos.Draw(t, "time"),
		Code: draw(t, "code", policy.UnitLimit), Policy: text.Draw(t, "policy"), Rule: text.Draw(t, "rule"), RuleID: text.Draw(t, "rule id"),
		LimitFrom: draw(t, "from", policy.FromGlobal), RuleUsed: small.Draw(t, "used"), RuleLimit: small.Draw(t, "limit"),
		GlobalUsed: small.Draw(t, "global used"), GlobalLimit: small.Draw(t, "global limit"),
		Container: text.Draw(t, "container"), Matcher: draw(t, "matcher", policy.Matcher(policy.LastMatcher)), Skipped: texts.Draw(t, "skipped"),
		Shadow: rapid.Bool().Draw(t, "shadow"), Generation: number.Draw(t, "generation"),
		DelayMS: nanos.Draw(t, "delay"), RetryAfter: nanos.Draw(t, "after"), PodName: text.Draw(t, "pod"), AvoidNodes: texts.Draw(t, "avoid"), NodesLeftOut: rapid.Uint32().Draw(t, "left out"),
	}
	d.ReadyAfter = rapid.OneOf(rapid.Just(d.RetryAfter), nanos).Draw(t, "ready")
	fill(t, "set digest", d.PolicySet[:])
	if rapid.Bool().Draw(t, "member") {
		d.Member = member(t)
	}
	if rapid.Bool().Draw(t, "group verdict") {
		d.Group = groupVerdict(t)
	}
	return d
}

// envelope is any envelope that keeps the format's own rules; its records are
// only bytes.
var envelope = rapid.Custom(func(t *rapid.T) *chain.Envelope {
	e := &chain.Envelope{Seq: max(1, number.Draw(t, "seq")), Epoch: max(1, number.Draw(t, "epoch")), InFrom: position.Draw(t, "from"), InTo: position.Draw(t, "to")}
	fill(t, "link", e.Link[:])
	fill(t, "owner", e.Owner[:])
	switch c := e.InFrom.Compare(e.InTo); {
	case c > 0:
		e.InFrom, e.InTo = e.InTo, e.InFrom
		fallthrough
	case c != 0:
		e.InCount = max(1, number.Draw(t, "count"))
	}
	for range rapid.IntRange(0, 3).Draw(t, "records") {
		e.Records = append(e.Records, chain.AppendRecord(nil, record.Draw(t, "record")))
	}
	return e
})

func member(t *rapid.T) *chain.Member {
	return &chain.Member{
		Group: text.Draw(t, "group"), Part: text.Draw(t, "part"), Replica: small.Draw(t, "replica"), Index: small.Draw(t, "index"),
		Generation: small.Draw(t, "generation"),
	}
}

func groupVerdict(t *rapid.T) *chain.GroupVerdict {
	return &chain.GroupVerdict{
		Reason: draw(t, "reason", policy.ReachedMaxRestarts), Action: draw(t, "action", policy.Halt), Rule: text.Draw(t, "rule"),
		RestartsUsed: small.Draw(t, "used"), MaxRestarts: small.Draw(t, "max"), Keep: rapid.Bool().Draw(t, "keep"), Refused: rapid.Bool().Draw(t, "refused"), Noted: rapid.Bool().Draw(t, "noted"),
	}
}

package model

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
)

// Ordered returns a history with orders of operators in it (semantics.md 16), and with version 5 from some message on. Most
// name a job's latest run; some another one, another queue, or an id that was used before. The same history and seed give
// the same.
func Ordered(h History, seed uint64) History {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x0bde))}
	from := g.IntN(len(h.Messages)/2 + 1)
	h.Versions = slices.DeleteFunc(slices.Clone(h.Versions), func(v Version) bool { return v.Before >= from })
	h.Versions = append(h.Versions, Version{Before: from, Number: OrdersVersion})
	changes, versions := slices.Clone(h.Changes), slices.Clone(h.Versions)
	m := New(h.Policies)
	var out []Message
	for i, msg := range h.Messages {
		for k, c := range h.Changes {
			if c.Before == i {
				m.Use(c.Policies)
				changes[k].Before = len(out)
			}
		}
		for k, v := range h.Versions {
			if v.Before == i {
				m.UseVersion(v.Number)
				versions[k].Before = len(out)
			}
		}
		msg.Entry *= 2 // room for a message after each
		if seq := g.orders(m); seq != nil && g.chance(0.3) {
			// At the end of a message, whatever it is: fields of protobuf that follow are of the same message.
			msg.Payload = slices.Concat(msg.Payload, marshal(&pb.EventSequence{Events: seq.Events}))
		}
		out = append(out, msg)
		m.Step(msg)
		if seq := g.orders(m); seq != nil && msg.Batch < 0 {
			mine := Message{Ledger: msg.Ledger, Entry: msg.Entry + 1, Batch: -1, Publish: msg.Publish + g.Int64N(1e9), Payload: marshal(seq)}
			out = append(out, mine)
			m.Step(mine)
		}
	}
	for k, c := range h.Changes { // after the last message
		if c.Before >= len(h.Messages) {
			changes[k].Before = len(out)
		}
	}
	h.Messages, h.Changes, h.Versions = out, changes, versions
	return h
}

func marshal(seq *pb.EventSequence) []byte {
	payload, err := proto.MarshalOptions{Deterministic: true}.Marshal(seq)
	if err != nil {
		panic(err)
	}
	return payload
}

// orders makes a message with orders; nil: there is none.
func (g *generator) orders(m *Model) *pb.EventSequence {
	if len(m.jobs) == 0 || g.chance(0.6) {
		return nil
	}
	ids := slices.Sorted(maps.Keys(m.jobs))
	j := m.jobs[pick(g, ids)]
	seq := &pb.EventSequence{Queue: cmp.Or(j.queue, "q"), JobSetName: cmp.Or(j.set, "s")}
	if g.chance(0.03) {
		seq.Queue = "elsewhere"
	}
	for range 1 + g.IntN(2) {
		o := &pb.JobOrder{JobId: j.id, RunId: "none", OrderId: fmt.Sprintf("order-%d", g.IntN(40)), Action: uint32(1 + g.IntN(3)), Author: "eve", Reason: "why not"}
		if o.Action == orderStart && g.chance(0.5) {
			o.NotBefore = g.pause()
		}
		if len(j.runs) > 0 {
			r := j.runs[len(j.runs)-1]
			if g.chance(0.1) {
				r = pick(g, j.runs)
			}
			o.RunId = r.id
		}
		switch p := g.Float64(); {
		case p < 0.02:
			o.Action = uint32(g.IntN(1000))
		case p < 0.03:
			o.RunId = ""
		case p < 0.04:
			o.JobId = "01unknown"
		}
		seq.Events = append(seq.Events, &pb.Event{Event: &pb.Event_JobOrder{JobOrder: o}})
	}
	return seq
}

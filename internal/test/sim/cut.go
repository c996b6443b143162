package sim

import (
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
)

// checkCut checks a run in which a log lost messages. An actor that still runs at the end has read nothing that
// proves the loss (protocol.md 3), no two running actors diverged, and none has a second decision on an input that it
// had processed.
func (w *world) checkCut(p int) {
	lines := w.written(p)
	var working []chain.End
	for _, m := range w.machines {
		if m.part == p && m.wanted && m.stopped == nil && m.phase == "live" {
			w.mustHaveStopped(m.String(), p, lines, m.positions.Chain)
			working = append(working, m.positions.Chain)
		}
	}
	for _, g := range w.ingesters {
		if g.stopped == nil {
			end := w.db.parts[p].positions.Chain
			w.mustHaveStopped(g.String(), p, lines, end)
			working = append(working, end)
			break
		}
	}
	if len(working) == 2 {
		w.mustAgree(p, lines, working[0], working[1])
	}
	seen := map[jobdb.RunKey]eventlog.Position{}
	for _, d := range w.db.parts[p].rest.Decisions {
		key := jobdb.RunKey{JobID: d.JobID, RunID: d.RunID}
		if at, ok := seen[key]; ok && at == d.Position {
			w.fail("the job database has two decisions on run %s of job %s at %v", d.RunID, d.JobID, at)
		}
		seen[key] = d.Position
	}
	w.checkStates(p)
}

// written are all envelopes that ever stood in the log, by their links.
func (w *world) written(p int) map[chain.Hash]*chain.Envelope {
	lines := map[chain.Hash]*chain.Envelope{}
	for _, m := range w.decisions.parts[p].all {
		if env, err := chain.DecodeEnvelope(m.Payload); err == nil {
			lines[chain.Link(m.Payload)] = env
		}
	}
	return lines
}

// line is what an end follows from, by seq.
func line(written map[chain.Hash]*chain.Envelope, end chain.End) map[uint64]chain.Hash {
	l := map[uint64]chain.Hash{}
	for link := end.Link; written[link] != nil; link = written[link].Link {
		l[written[link].Seq] = link
	}
	return l
}

// mustHaveStopped reads the log as an actor does: messages that are not on the actor's chain must not refer to
// envelopes that it does not know.
func (w *world) mustHaveStopped(who string, p int, written map[chain.Hash]*chain.Envelope, end chain.End) {
	own := line(written, end)
	var seq, epoch uint64
	var owner chain.OwnerID
	gone := w.decisions.parts[p].gone()
	for _, m := range w.decisions.parts[p].all {
		env, link := written[chain.Link(m.Payload)], chain.Link(m.Payload)
		if env == nil {
			continue
		}
		if own[env.Seq] == link {
			if env.Seq == seq+1 {
				seq, epoch, owner = env.Seq, env.Epoch, env.Owner
			}
			continue
		}
		if gone[m.Position] {
			continue
		}
		claim := claimIn(env)
		switch {
		case claim != nil && claim.LastSeq > seq:
			w.fail("%v is at envelope %d and passed the claim at %v, which names envelope %d when it knew %d", who, end.Seq, m.Position, claim.LastSeq, seq)
		case claim == nil && (env.Epoch > epoch || env.Epoch == epoch && env.Owner != owner):
			w.fail("%v is at envelope %d and passed envelope %d of epoch %d at %v, when it knew epoch %d", who, end.Seq, env.Seq, env.Epoch, m.Position, epoch)
		}
	}
}

// mustAgree checks two running actors: one follows from the other, or the one of the newer epoch has written only
// its claim. (A late envelope of an old owner may have become part of the newer chain, since the claim before it
// is lost. Actors that knew that claim ignored it.)
//
// What protocol.md 3 cannot detect is only counted: if the lost part contained two or more claims, actors that knew
// them take the new chain for that of a slow old owner.
func (w *world) mustAgree(p int, written map[chain.Hash]*chain.Envelope, a, b chain.End) {
	if a.Seq < b.Seq {
		a, b = b, a
	}
	ways := [2]map[uint64]chain.Hash{line(written, a), line(written, b)}
	if b.Seq == 0 || ways[0][b.Seq] == b.Link {
		return
	}
	newer, older, epoch := ways[0], ways[1], a.Epoch
	if b.Epoch > a.Epoch {
		newer, older, epoch = older, newer, b.Epoch
	}
	gone := w.decisions.parts[p].gone()
	for _, m := range w.decisions.parts[p].all {
		link := chain.Link(m.Payload)
		env := written[link]
		if env == nil || newer[env.Seq] != link || older[env.Seq] == link || env.Epoch < epoch || claims(env) {
			continue
		}
		if gone[m.Position] {
			w.saw(SawTwoWays)
			continue
		}
		w.fail("partition %d went two ways, to envelopes %d and %d, and nobody stopped", p, a.Seq, b.Seq)
		return
	}
}

// claims says whether a whole envelope is a claim.
func claims(env *chain.Envelope) bool { return claimIn(env) != nil }

func claimIn(env *chain.Envelope) *chain.OwnerClaim {
	records, err := env.Decode()
	if err != nil || len(records) == 0 {
		return nil
	}
	claim, _ := records[0].(*chain.OwnerClaim)
	return claim
}

// gone are the positions that the log once held.
func (part *partition) gone() map[eventlog.Position]bool {
	gone := map[eventlog.Position]bool{}
	for _, m := range part.all {
		gone[m.Position] = true
	}
	for _, m := range part.held {
		delete(gone, m.Position)
	}
	return gone
}

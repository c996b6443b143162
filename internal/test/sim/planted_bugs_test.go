package sim_test

import "github.com/refloat/refloat/internal/test/planted"

// bug breaks one rule of protocol.md that is marked ✂, or one of groups, by patches of the source.
type bug struct {
	rule    string
	what    string
	patches []patch
}

// patch changes a file of internal/.
type patch = planted.Patch

func (b *bug) planted() *planted.Bug {
	return &planted.Bug{Dir: "internal", What: b.what, Patches: b.patches}
}

// plantedProtocol are bugs in the code that follows protocol.md.
func plantedProtocol() []bug {
	return []bug{
		{"1", "a RetryReady does not name its position", []patch{{
			"evaluator/record.go", "&chain.RetryReady{Position: p.at, JobID", "&chain.RetryReady{JobID",
		}}},
		{"3", "a claim that names a later end is only ignored", []patch{{
			"chain/accept.go", "if claim.LastSeq > e.Seq {", "if false {",
		}}},
		{"3", "an envelope of an epoch without claim is only ignored", []patch{{
			"chain/accept.go", "} else if env.Epoch > e.Epoch || env.Epoch == e.Epoch && env.Owner != e.Owner {", "} else if false {",
		}}},
		{"3", "the count of a range is not compared", []patch{{
			"chain/follow/follow.go", "if uint64(n) != s.Envelope.InCount && (!partly || uint64(n) > s.Envelope.InCount) {", "if false {",
		}}},
		{"4", "a new policy set decides before it is activated", []patch{{
			"evaluator/live.go", "		out, err := o.proc.StepAs(fit.form, m)",
			"		_ = o.cfg.Policies.Refresh()\n		if g, set := o.cfg.Policies.Newest(); set != nil {\n			o.proc.Rules = Rules{g, set.Set}\n		}\n		out, err := o.proc.StepAs(fit.form, m)",
		}}},
		{"4", "an activation holds only from after its envelope on, for who catches up", []patch{
			{"evaluator/owner.go", "	o.proc.Activate(s.Records)\n	logged := LoggedIn(s.Accepted)", "	logged := LoggedIn(s.Accepted)"},
			{
				"evaluator/owner.go", "	batch := o.cfg.Store.NewBatch()\n	flush, err := o.proc.State.Flush(batch)",
				"	o.proc.Activate(s.Records)\n	batch := o.cfg.Store.NewBatch()\n	flush, err := o.proc.State.Flush(batch)",
			},
		}},
		{"4", "a generation is its place among those that can be used", []patch{{
			"policylog/shared.go", "	s.held = append(s.held, g)",
			"	if g.err == nil {\n		s.held = append(s.held, g)\n	}",
		}}},
		{"4, 7", "the generation in force is not waited for, and may go back", []patch{
			{"evaluator/owner.go", "	if !ok {\n		return false, nil\n	}\n	if d := set.Digest(); generation != 0 &&", "	if !ok {\n		generation, set = o.cfg.Policies.Newest()\n	}\n	if d := set.Digest(); ok && generation != 0 &&"},
			{"evaluator/owner.go", "if ended, err := o.cfg.Policies.AtEnd(); err != nil || !ended {", "if err := o.cfg.Policies.Refresh(); err != nil {"},
			{"evaluator/live.go", "newest > o.proc.Progress.Generation", "newest != o.proc.Progress.Generation"},
		}},
		{"6", "jobs are committed before the positions that belong to them", []patch{{
			"evaluator/owner.go", "	if err := o.cfg.Store.Commit(batch, b); err != nil {",
			"	if old, err := o.cfg.Store.Meta(); err != nil {\n		return err\n	} else if err := o.cfg.Store.Commit(batch, old); err != nil {\n		return err\n	}\n	if err := o.cfg.Store.Commit(o.cfg.Store.NewBatch(), b); err != nil {",
		}}},
		{"6", "the watermark is not committed", []patch{{
			"evaluator/owner.go", "Watermark: o.proc.State.Watermark,", "Watermark: projection.NoWatermark,",
		}}},
		{"6", "the running hash is not committed", []patch{{
			"evaluator/owner.go", "	b, err := m.encode()", "	m.Progress.Running = chain.Hash{}\n	b, err := m.encode()",
		}}},
		{"6", "a commit happens within an envelope", []patch{{
			"evaluator/owner.go", "		if err := o.proc.Replay(&s.Messages[i], logged); err != nil {\n			return err\n		}",
			"		if err := o.proc.Replay(&s.Messages[i], logged); err != nil {\n			return err\n		}\n		half := o.cfg.Store.NewBatch()\n		if flush, err := o.proc.State.Flush(half); err != nil {\n			return err\n		} else if err := o.commit(half, flush, o.metaAt(o.positions)); err != nil {\n			return err\n		}",
		}}},
		{"7", "who catches up decides again", []patch{{
			"evaluator/owner.go", "		if err := o.proc.Replay(&s.Messages[i], logged); err != nil {\n			return err\n		}",
			"		if err := o.cfg.Policies.Refresh(); err != nil {\n			return err\n		}\n		if g, set := o.cfg.Policies.Newest(); set != nil {\n			o.proc.Rules = Rules{g, set.Set}\n		}\n		if _, err := o.proc.Step(&s.Messages[i]); err != nil {\n			return err\n		}\n		logged.Records = nil",
		}}},
		{"7", "the claim is not read back", []patch{{
			"evaluator/owner.go", "	o.enter(awaitingClaim)",
			"	o.positions.Chain = chain.End{Seq: env.Seq, Link: o.claim, Epoch: env.Epoch, Owner: env.Owner, InTo: env.InTo}\n	o.enter(awaitingPolicies)",
		}}},
		{"8", "own envelopes are recognised by their number", []patch{{
			"evaluator/live.go", "o.window[0].end.Link != chain.Link(m.Payload)",
			"func() bool { e, err := chain.DecodeEnvelope(m.Payload); return err != nil || e.Seq != o.window[0].end.Seq }()",
		}}},
		{"8", "state is committed when it is published", []patch{{
			"evaluator/live.go", "	return true, o.point(PointPublished)",
			"	in := &o.window[len(o.window)-1]\n	if err := o.commit(in.batch, in.flush, o.metaAt(follow.Positions{Chain: o.tip, Decisions: o.positions.Decisions})); err != nil {\n		return false, err\n	}\n	return true, o.point(PointPublished)",
		}}},
		{"8", "what is acknowledged is not synced", []patch{{
			"evaluator/live.go", "	if err := o.cfg.Store.Sync(); err != nil {\n		return err\n	}\n", "",
		}}},
		{"8", "changes of envelopes that are on their way are committed with those before", []patch{{
			"evaluator/live.go", "if len(o.window) > 0 || o.saved", "if o.saved",
		}}},
		{"9", "an owner waits for its envelopes for ever", []patch{{
			"evaluator/live.go", "t.now-o.window[0].sentAt > int64(o.cfg.ReadBackTimeout)", "false",
		}}},
		{"9", "an owner waits for its claim for ever", []patch{{
			"evaluator/owner.go", "now-o.sentAt > int64(o.cfg.ReadBackTimeout)", "false",
		}}},
		{"9", "the state that ran ahead is kept when another owner's envelope comes", []patch{{
			"evaluator/live.go", "		return fmt.Errorf(\"%w: envelope %d of epoch %d is not ours\", ErrLost, acc.Envelope.Seq, acc.Envelope.Epoch)",
			"		o.positions, o.tip, o.window = follow.Positions{Chain: acc.End, Decisions: m.Position}, acc.End, nil\n		return nil",
		}}},
		{"10", "epochs come from the clock", []patch{
			{"evaluator/owner.go", "&chain.OwnerClaim{Epoch: end.Epoch + 1,", "&chain.OwnerClaim{Epoch: uint64(now),"},
			{"chain/accept.go", "claim.Epoch != e.Epoch+1", "claim.Epoch <= e.Epoch"},
		}},
		{"11", "positions are not compared under the lock", []patch{
			{"sink/writer.go", "if tx.Positions() != p.positions {", "if false {"},
			{"sink/writer.go", "tx.Commit(ctx, p.positions, p.batch.positions)", "tx.Commit(ctx, tx.Positions(), p.batch.positions)"},
		}},
		{"11", "rows and positions are two transactions", []patch{{
			"sink/writer.go", "	if err := tx.Commit(ctx, p.positions, p.batch.positions); err != nil {",
			"	if err := tx.Commit(ctx, p.positions, p.positions); err != nil {\n		return nil, fmt.Errorf(\"commit: %w\", err)\n	}\n	if tx, err = w.cfg.DB.Begin(ctx, p.number); err != nil {\n		return nil, err\n	}\n	if err := tx.Commit(ctx, p.positions, p.batch.positions); err != nil {",
		}}},
		{"11", "positions are set without that in the chain's log", []patch{{
			"sink/writer.go", "tx.Commit(ctx, p.positions, p.batch.positions)", "tx.Commit(ctx, p.positions, jobdb.Positions{Chain: p.batch.positions.Chain, Decisions: p.positions.Decisions, Events: p.batch.positions.Events})",
		}}},
		{"11", "after an unknown commit the positions are not read again", []patch{
			{"sink/writer.go", "return nil, fmt.Errorf(\"commit: %w\", err)", "return changes, nil"},
			{"sink/writer.go", "if tx.Positions() != p.positions {", "if false {"},
			{"sink/writer.go", "tx.Commit(ctx, p.positions, p.batch.positions)", "tx.Commit(ctx, tx.Positions(), p.batch.positions)"},
		}},
		{"13", "of a partly released envelope all is superseded", []patch{{
			"sink/message.go", "m.Superseded = m.Log.Position.Compare(released) <= 0", "m.Superseded = s.Envelope.InFrom.Compare(released) < 0",
		}}},
		{"13", "what was released is decided all the same", []patch{{
			"sink/message.go", "m.Superseded = m.Log.Position.Compare(released) <= 0", "m.Superseded = false",
		}}},
		{"13", "the log's end is not looked at before a release", []patch{{
			"sink/release.go", "return end.Compare(p.follower.Processed()) > 0, nil", "return end.Compare(eventlog.Start) < 0, nil",
		}}},
		{"13", "after a release the chain is followed from the event position", []patch{{
			"sink/writer.go", "follow.Positions{Chain: p.positions.Chain, Decisions: p.positions.Decisions}",
			"follow.Positions{Chain: chain.End{Seq: p.positions.Chain.Seq, Link: p.positions.Chain.Link, Epoch: p.positions.Chain.Epoch, Owner: p.positions.Chain.Owner, InTo: p.positions.Events}, Decisions: p.positions.Decisions}",
		}}},
		{"13", "an outage of the decision log counts as a slow chain", []patch{
			{"sink/writer.go", "		if err != nil || s == nil {\n			return err\n		}\n		acts,", "		if errors.Is(err, eventlog.ErrTransient) || s == nil {\n			return nil\n		} else if err != nil {\n			return err\n		}\n		acts,"},
			{"sink/release.go", "	if err != nil {\n		return false, fmt.Errorf(\"find the end of decisions: %w\", err)\n	}\n", "	_ = err\n"},
		}},
		{"13", "a superseded decision acts", []patch{
			{"sink/record.go", "f.Acted[i] = !f.Superseded && f.decide(r)", "f.Acted[i] = f.decide(r)"},
			{"sink/record.go", "if run.Outcome == jobdb.Released {", "if false {"},
		}},
		{"14", "a half rebuilt state is taken for a whole one", []patch{{
			"evaluator/owner.go", "	if m.Rebuilding {", "	if false {",
		}}},
		{"14", "more is given up than is gone", []patch{{
			"evaluator/refuse.go", "	to, held := begin, o.positions.Chain.InTo\n", "	to, held := begin, o.positions.Chain.InTo\n	if end, err := o.cfg.Events.End(o.cfg.Partition); err == nil {\n		to = end\n	}\n",
		}}},
		{"14", "another number of partitions is not refused", []patch{{
			"evaluator/refuse.go", "was != n && o.cfg.AcceptPartitions != int(n)", "was != n && false",
		}}},
		{"14", "a smaller number of partitions is not refused", []patch{{
			"evaluator/refuse.go", "was != 0 && was != n &&", "was != 0 && was < n &&",
		}}},
		{"14", "the number of partitions that a claim names is not kept", []patch{{
			"evaluator/step.go", "			p.Progress.Partitions = r.Partitions\n", "			_ = r\n",
		}}},
		{"14", "an ingester starts though decisions have fewer partitions than events", []patch{{
			"sink/writer.go", "; e != d {", "; e < d {",
		}}},
		{"12", "the events of a copy change rows", []patch{{
			"sink/ops.go", " && !IsCopy(&m.Log)", "",
		}}},
		{"12", "copies are copied", []patch{{
			"sink/mirror.go", " && !IsCopy(&m.Log)", "",
		}}},
		{"12", "superseded decisions are copied", []patch{{
			"sink/mirror.go", "!m.Superseded && ", "",
		}}},
		{"12", "copies are published after the commit", []patch{
			{"sink/writer.go", "	if err := w.mirror(ctx, tx, p); err != nil {\n		return nil, err\n	}\n", ""},
			{"sink/writer.go", "	return changes, nil\n", "	return changes, w.mirror(ctx, tx, p)\n"},
		}},
		{"12", "what a failed transaction took is copied by the next one", []patch{{
			"sink/writer.go", "		p.mirror.Reset()\n", "",
		}}},
		{"12", "copies that are due wait for events", []patch{{
			"sink/writer.go", "		if !w.mirrorDue(p) {", "		if true {",
		}}},
	}
}

package sim

import (
	"fmt"
	"slices"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/test/model"
)

// Sets are policy sets that were made once for many runs.
type Sets struct {
	naive    []model.Policies
	sets     []*policyfile.Set
	payloads [][]byte // messages of the policies log

	ordinary int      // the first ones have no groups
	families []family // of the others
}

// family is a policy set for a history of groups, and what it becomes: the same group policies with
// other rules, limits and parts, or without some of them. They are indexes of Sets.
type family []int

// NewSets makes n random policy sets and n/3 families of sets with group policies, the smaller
// ones of a larger number: owners parse them again and again.
func NewSets(n int) (*Sets, error) {
	s := &Sets{ordinary: n}
	var all [][]model.Policies
	for seed := range uint64(4 * n) {
		h := model.Generate(seed, model.Options{Changes: seed%2 == 0})
		p := h.Policies
		if len(h.Changes) > 0 {
			p = h.Changes[len(h.Changes)-1].Policies
		}
		all = append(all, []model.Policies{p})
	}
	if err := s.addSmallest(all, n); err != nil {
		return nil, err
	}
	all = nil
	for seed := uint64(0); len(all) < n; seed++ {
		h := model.GenerateGroups(seed, model.GroupOptions{})
		one := []model.Policies{h.Policies}
		for _, c := range h.Changes {
			one = append(one, c.Policies)
		}
		if len(one) > 2 {
			all = append(all, one)
		}
	}
	return s, s.addSmallest(all, n/3)
}

// addSmallest adds the n smallest of these lists, each as a family.
func (s *Sets) addSmallest(lists [][]model.Policies, n int) error {
	type made struct {
		naive    []model.Policies
		sets     []*policyfile.Set
		payloads [][]byte
		size     int
	}
	var all []made
	for i, list := range lists {
		m := made{naive: list}
		for _, p := range list {
			var files []policyfile.File
			for _, f := range p.YAML(false) {
				files = append(files, policyfile.File{Name: f.Name, Data: f.Data})
			}
			set, err := policyfile.Parse(files)
			if err != nil {
				return fmt.Errorf("policy set %d: %w", i, err)
			}
			payload, err := policylog.Encode(&policylog.Proposal{Set: set, Author: "sim", Time: 0})
			if err != nil {
				return err
			}
			m.sets, m.payloads, m.size = append(m.sets, set), append(m.payloads, payload), m.size+len(payload)
		}
		all = append(all, m)
	}
	slices.SortStableFunc(all, func(a, b made) int { return a.size - b.size })
	for _, m := range all[:n] {
		if len(s.sets) >= s.ordinary {
			var f family
			for i := range m.sets {
				f = append(f, len(s.sets)+i)
			}
			s.families = append(s.families, f)
		}
		s.naive, s.sets, s.payloads = append(s.naive, m.naive...), append(s.sets, m.sets...), append(s.payloads, m.payloads...)
	}
	return nil
}

// history is what is still to be fed to one partition.
type history struct {
	messages []model.Message
	fed      []model.Message // as in the log, with origin positions and times
}

func (w *world) newHistory(partitions int) history {
	seed := w.rng.Uint64()
	var h model.History
	if w.family != nil {
		h = model.GenerateGroups(seed, model.GroupOptions{Policies: &w.cfg.Sets.naive[w.family[0]], Steady: true})
	} else {
		h = model.Generate(seed, model.Options{Republished: w.one(3)})
	}
	if seed%3 == 0 {
		h = model.Ordered(h, seed)
	}
	return history{messages: h.Messages[:min(len(h.Messages), 70/partitions)]}
}

func (w *world) fed() bool {
	for p := range w.histories {
		if len(w.histories[p].messages) > 0 {
			return false
		}
	}
	return true
}

// feed appends some events.
func (w *world) feed() {
	if w.events.down() {
		return
	}
	p := w.rng.IntN(len(w.histories))
	h := &w.histories[p]
	for range min(len(h.messages), 1+w.rng.IntN(6)) {
		m := h.messages[0]
		h.messages = h.messages[1:]
		msg := eventlog.Message{Publish: m.Publish, Payload: m.Payload}
		switch w.mode {
		case ownTimes:
		case liveTimes:
			m.Publish, msg.Publish = w.now, w.now
		case recordedTimes:
			w.saw(SawRecording)
			msg.Publish = w.now
			at := eventlog.Position{Ledger: m.Ledger, Entry: m.Entry, Batch: m.Batch}
			msg.Origin = eventlog.Origin{Recording: "history", Position: at, Publish: m.Publish}
		}
		at := w.events.append(p, msg)
		if w.mode != recordedTimes {
			m.Ledger, m.Entry, m.Batch = at.Ledger, at.Entry, at.Batch
		}
		h.fed = append(h.fed, m)
		if w.tracing {
			w.logf("events of partition %d: %v", p, at)
		}
	}
}

// activateSet appends a policy generation, sometimes one that cannot be used.
func (w *world) activateSet() {
	if w.policies.down() {
		return
	}
	n := -1
	switch {
	case w.one(8):
	case w.family != nil && len(w.generations) == 0:
		n = w.family[0]
	case w.family != nil && !w.one(6):
		n = w.family[w.rng.IntN(len(w.family))]
	default:
		n = w.rng.IntN(w.cfg.Sets.ordinary)
	}
	payload := []byte("no generation")
	if n >= 0 {
		payload = w.cfg.Sets.payloads[n]
	}
	w.generations = append(w.generations, n)
	w.policies.append(0, eventlog.Message{Payload: payload})
	w.logf("policy generation %d is set %d", len(w.generations), n)
	for _, m := range w.machines {
		if m.phase == "catching up" {
			w.saw(SawPolicyInCatchUp)
		}
	}
}

// strange writes garbage or something old into the decision log.
func (w *world) strange() {
	if w.decisions.down() {
		return
	}
	p := w.rng.IntN(w.decisions.Partitions())
	raw := []byte(fmt.Sprintf("garbage %d", w.rng.IntN(100)))
	old := w.decisions.parts[p].all
	switch {
	case w.one(4):
	case len(w.lost) > 0 && w.one(4) && len(w.chains) == 1:
		raw = w.lost[w.rng.IntN(len(w.lost))]
	case len(old) > 0 && w.one(3):
		raw = damaged(old[w.rng.IntN(len(old))].Payload, w.rng.Uint32())
	case len(old) > 0:
		raw = old[len(old)-1-w.rng.IntN(min(len(old), 1+w.rng.IntN(20)))].Payload
	}
	if !w.answersGone(p, raw) {
		w.write(p, raw, nil)
	}
}

// damaged is a piece of a message, or all of it with one bit changed.
func damaged(raw []byte, how uint32) []byte {
	if len(raw) == 0 {
		return raw
	}
	at := int(how>>4) % len(raw)
	if how&8 == 0 {
		return raw[:at]
	}
	raw = slices.Clone(raw)
	raw[at] ^= 1 << (how & 7)
	return raw
}

// copyState keeps a copy of a machine's store, as a checkpoint.
func (w *world) copyState(m *machine) {
	if m.store.meta != nil {
		w.copies[m.part] = append(w.copies[m.part], m.store.clone())
		w.logf("a copy of %v's store is kept", m)
	}
}

// trim deletes events that the job database has applied, up to the position of a store of which a copy is kept.
func (w *world) trim(p int) {
	var newest *machine
	for _, m := range w.machines {
		if m.part == p && m.store.durable.meta != nil && m.stopped == nil {
			newest = m
		}
	}
	if newest == nil {
		return
	}
	limit := w.keptIn(newest.store.durable.meta).usable().Chain.InTo
	if at := w.db.parts[p].positions.Chain.InTo; at.Compare(limit) < 0 {
		limit = at
	}
	held, n := w.events.parts[p].held, 0
	for n < len(held) && held[n].Position.Compare(limit) <= 0 {
		n++
	}
	if n == 0 {
		return
	}
	w.copies[p] = append(w.copies[p], newest.store.durable.clone())
	w.events.trim(p, 1+w.rng.IntN(n))
	w.logf("retention takes the events of partition %d up to %v", p, w.events.parts[p].trimmed)
}

// cutLog takes messages out of a log: its end, or some in the middle. It says
// whether there were any.
func (w *world) cutLog() bool {
	p, t := w.rng.IntN(len(w.chains)), w.decisions
	if w.one(3) {
		t = w.events
	}
	n := len(t.parts[p].held)
	if n == 0 {
		return false
	}
	to := n
	if w.one(2) {
		to = 1 + w.rng.IntN(n)
	}
	if t == w.decisions && w.one(2) {
		to = w.beforeClaim(p, to)
	}
	from := to - 1 - w.rng.IntN(min(to, 12))
	w.logf("%s of partition %d lose messages %d to %d of %d", t.name, p, from, to-1, n)
	t.cut(p, from, to)
	w.cut = true
	w.saw(SawCut)
	if w.one(2) { // a machine that starts now knows little of the lost messages
		m := w.machines[w.rng.IntN(len(w.machines))]
		m.close()
		m.forgetMost()
		w.move(m)
	}
	return true
}

// beforeClaim returns the index of the last claim before an index in a decision log, or that index.
func (w *world) beforeClaim(p, place int) int {
	held := w.decisions.parts[p].held
	for i := place - 1; i > 0; i-- {
		if env, err := chain.DecodeEnvelope(held[i].Payload); err == nil && claims(env) {
			return i
		}
	}
	return place
}

package sim

import (
	"hash/fnv"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/test/model"
)

// grow adds a partition to events. About half of the job sets of partition 0 move to it
// with what is still to come of them. Processes keep the number of partitions with which
// they opened the topics until they notice the new one, which takes them some time.
func (w *world) grow() {
	p := len(w.chains)
	w.events.add()
	w.events.shown++
	w.decisions.add()
	w.decisionsGrow = w.now + w.rng.Int64N(4000*millisecond)
	w.db.add(p)
	w.chains = append(w.chains, plain{inTo: eventlog.Start})
	w.copies, w.accepted = append(w.copies, nil), append(w.accepted, false)
	var moved history
	h := &w.histories[0]
	var stay []model.Message
	for _, m := range h.messages {
		if moves(m.Payload) {
			moved.messages = append(moved.messages, m)
			w.saw(SawMovedSets)
		} else {
			stay = append(stay, m)
		}
	}
	h.messages = stay
	w.histories = append(w.histories, moved)
	for _, m := range w.machines {
		m.recount = w.now + w.rng.Int64N(1+w.rng.Int64N(30_000*millisecond))
	}
	for _, g := range w.ingesters {
		g.recount = w.now + w.rng.Int64N(8000*millisecond)
	}
	for i := range 1 + w.rng.IntN(2) {
		w.machines = append(w.machines, &machine{w: w, part: p, number: i, store: newStore(kv{}), wanted: i == 0})
	}
	w.logf("events have %d partitions, and %d messages move", p+1, len(moved.messages))
}

// growDecisions adds the partition to decisions, once the operator does so.
func (w *world) growDecisions() {
	if w.decisions.shown < w.events.shown && (w.calm || w.now >= w.decisionsGrow) {
		w.decisions.shown = w.events.shown
		w.logf("decisions have %d partitions", w.decisions.shown)
	}
}

// moves says whether the job set of a message goes to the new partition.
func moves(payload []byte) bool {
	seq := &pb.EventSequence{}
	if proto.Unmarshal(payload, seq) != nil {
		return false
	}
	h := fnv.New32a()
	h.Write([]byte(seq.JobSetName))
	return h.Sum32()%2 == 0
}

// opened is a topic as a process knows it: with the partitions that it had when the
// process started.
type opened struct {
	*topic
	n int
}

func (o opened) Partitions() int { return o.n }

// open lets the machine's process start if the topics have as many partitions as each
// other, and one for the machine. It returns false if it cannot run now.
func (m *machine) open() bool {
	w := m.w
	if m.opened == 0 {
		n := w.events.Partitions()
		if n != w.decisions.Partitions() || m.part >= n {
			m.backOff()
			return false
		}
		m.opened, m.policies = n, nil
	}
	return true
}

// quit ends the machine's process: it has noticed that events have more partitions.
func (m *machine) quit() {
	m.w.logf("%v ends: there are more partitions than %d", m, m.opened)
	m.close()
	m.opened = 0
	m.backOff()
}

// refuseCount handles an owner that refuses the number of partitions. An operator restarts one that names the new
// number, with an acknowledgement; one that still knows the old number waits.
func (m *machine) refuseCount(err error) {
	w := m.w
	w.logf("%v refuses: %v", m, err)
	m.close()
	m.wake = w.now + w.rng.Int64N(2000*millisecond)
	if m.opened != w.events.Partitions() {
		w.saw(SawStaleCount)
		return
	}
	w.saw(SawRepartitioned)
	m.allowed = m.opened
}

// checkGrowth checks that a chain changes its number of partitions only once, and only after an operator
// acknowledged that number. Owners that start later need no acknowledgement.
func (w *world) checkGrowth(p int, a *accepted) {
	claim := claimIn(a.env)
	if claim == nil {
		return
	}
	c := &w.chains[p]
	was := c.of
	c.of = claim.Partitions
	if was == 0 || was == claim.Partitions {
		return
	}
	w.saw(SawGrown)
	allowed := false
	for _, m := range w.machines {
		if m.part == p && m.allowed != 0 {
			allowed = allowed || m.allowed == int(claim.Partitions)
			m.allowed = 0
		}
	}
	if !allowed {
		w.fail("envelope %d claims partition %d of %d, it was one of %d, and nobody accepted that", a.env.Seq, p, claim.Partitions, was)
	}
}

// checkMoved looks at what becomes of jobs whose set has moved: the new partition does not
// know them, so it leaves their failures alone, unless their SubmitJob comes again. Then it
// may decide a run that was decided before, which the operator has accepted as well: a
// partition knows nothing of what another one did.
func (w *world) checkMoved() {
	if w.decisionsGrow == 0 {
		return
	}
	type run struct{ job, run string }
	seen := map[run]int{}
	for p := range w.chains {
		if p > 0 && p < len(w.chains)-1 {
			continue // another history, in which jobs have the same names
		}
		for i := range w.chains[p].envelopes {
			for _, r := range w.chains[p].envelopes[i].records {
				if n, ok := r.(*chain.NotDecided); ok && p > 0 && n.Reason == chain.UnknownJob && w.db.parts[0].jobs[n.JobID].Known {
					w.saw(SawMovedJob)
				}
				d, ok := r.(*chain.Decision)
				if !ok || d.Shadow {
					continue
				}
				if at, there := seen[run{d.JobID, d.RunID}]; there && at != p {
					w.saw(SawDecidedTwice)
				}
				seen[run{d.JobID, d.RunID}] = p
			}
		}
	}
}

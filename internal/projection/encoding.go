package projection

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrCorrupt means that a stored record is not what was written.
var ErrCorrupt = errors.New("stored state is corrupt")

// The first byte of every record is its version.
const (
	jobVersion  = 1
	ordered     = 2 // of a job with orders
	runVersion  = 1
	metaVersion = 1
)

// encoder appends values; decoder removes them in the same order.
type encoder struct{ b []byte }

func (e *encoder) uints(vs []uint32) {
	e.uint(uint64(len(vs)))
	for _, v := range vs {
		e.uint(uint64(v))
	}
}

func (e *encoder) uint(v uint64)   { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) int(v int64)     { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) string(v string) { e.uint(uint64(len(v))); e.b = append(e.b, v...) }
func (e *encoder) strings(vs []string) {
	e.uint(uint64(len(vs)))
	for _, v := range vs {
		e.string(v)
	}
}

// bools packs up to 8 flags into one byte.
func (e *encoder) bools(vs ...bool) {
	var b byte
	for i, v := range vs {
		if v {
			b |= 1 << i
		}
	}
	e.b = append(e.b, b)
}

type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) fail() { d.b, d.bad = nil, true }

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) uint32() uint32 {
	v := d.uint()
	if v > 1<<32-1 {
		d.fail()
	}
	return uint32(v)
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) string() string {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.fail()
		return ""
	}
	v := string(d.b[:n])
	d.b = d.b[n:]
	return v
}

func (d *decoder) count() int {
	n := d.uint()
	if n > uint64(len(d.b)) { // an element has at least one byte
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) strings() []string {
	n := d.count()
	if n == 0 {
		return nil
	}
	vs := make([]string, n)
	for i := range vs {
		vs[i] = d.string()
	}
	return vs
}

func (d *decoder) bools(vs ...*bool) {
	b := d.byte()
	for i, v := range vs {
		*v = b&(1<<i) != 0
	}
}

func (d *decoder) version(want byte, what string) error {
	if v := d.byte(); d.bad || v != want {
		return fmt.Errorf("%w: %s of version %d, this program reads %d", ErrCorrupt, what, v, want)
	}
	return nil
}

func (d *decoder) done(what string) error {
	if d.bad || len(d.b) != 0 {
		return fmt.Errorf("%w: %s has the wrong length", ErrCorrupt, what)
	}
	return nil
}

func appendJob(b []byte, j *Job) []byte {
	e := encoder{append(b, jobVersion)}
	if len(j.Orders) > 0 {
		e.b[len(b)] = ordered
		e.strings(j.Orders)
	}
	e.bools(j.Known, j.FailFast, j.CancelRequested, j.Cancelled, j.Ended, j.Verdict, j.Older, j.Succeeded)
	e.string(j.Queue)
	e.string(j.Set)
	e.string(j.RetryPolicies)
	e.string(j.GangID)
	e.string(j.GangSize)
	e.strings(j.InitContainers)
	e.int(j.GraceSeconds)
	e.uint(uint64(j.Runs))
	e.uint(uint64(j.Open))
	e.strings(j.FailedNodes)
	e.uint(uint64(len(j.Rules)))
	for _, r := range j.Rules {
		e.string(r.Policy)
		e.string(r.Rule)
		e.uint(uint64(r.Granted))
		e.uint(uint64(r.Ignored))
	}
	e.uint(uint64(j.Granted))
	e.uint(uint64(j.LegacyReturns))
	e.int(j.EndedAt)
	e.int(j.FirstSeen)
	e.int(j.VerdictAt)
	if j.Runs > 0 {
		e.string(j.Latest.ID)
		e.run(j.Latest)
	}
	if j.Member != nil {
		e.member(j.Member)
	}
	return e.b
}

func (e *encoder) member(m *Member) {
	e.string(m.Group)
	e.string(m.Part)
	e.uint(uint64(m.Replica))
	e.uint(uint64(m.Index))
	e.bools(m.Restart != nil)
	if r := m.Restart; r != nil {
		e.string(r.Run)
		e.int(r.RetryAfter)
		e.string(r.Policy)
		e.string(r.Rule)
	}
}

func (d *decoder) member() *Member {
	m := &Member{Place: &Place{Group: d.string(), Part: d.string()}, Replica: d.uint32(), Index: d.uint32()}
	var pending bool
	if d.bools(&pending); pending {
		m.Restart = &Restart{Run: d.string(), RetryAfter: d.int(), Policy: d.string(), Rule: d.string()}
	}
	return m
}

func decodeJob(id string, b []byte) (*Job, error) {
	d := decoder{b: b}
	j := &Job{ID: id}
	if len(b) > 0 && b[0] == ordered {
		d.b = b[1:]
		if j.Orders = d.strings(); len(j.Orders) == 0 { // then it would be of version 1
			d.fail()
		}
	} else if err := d.version(jobVersion, "job"); err != nil {
		return nil, err
	}
	d.bools(&j.Known, &j.FailFast, &j.CancelRequested, &j.Cancelled, &j.Ended, &j.Verdict, &j.Older, &j.Succeeded)
	j.Queue, j.Set = d.string(), d.string()
	j.RetryPolicies, j.GangID, j.GangSize = d.string(), d.string(), d.string()
	j.InitContainers = d.strings()
	j.GraceSeconds = d.int()
	j.Runs, j.Open = d.uint32(), d.uint32()
	j.FailedNodes = d.strings()
	if n := d.count(); n > 0 {
		j.Rules = make([]RuleCount, n)
		for i := range j.Rules {
			j.Rules[i] = RuleCount{Policy: d.string(), Rule: d.string(), Granted: d.uint32(), Ignored: d.uint32()}
		}
	}
	j.Granted, j.LegacyReturns = d.uint32(), d.uint32()
	j.EndedAt, j.FirstSeen, j.VerdictAt = d.int(), d.int(), d.int()
	if j.Runs > 0 {
		j.Latest = &Run{ID: d.string()}
		d.run(j.Latest)
	}
	if len(d.b) > 0 { // only members of groups have more
		j.Member = d.member()
	}
	return j, d.done("job " + id)
}

func appendRun(b []byte, r *Run) []byte {
	e := encoder{append(b, runVersion)}
	e.run(r)
	return e.b
}

func decodeRun(id string, b []byte) (*Run, error) {
	d := decoder{b: b}
	if err := d.version(runVersion, "run"); err != nil {
		return nil, err
	}
	r := &Run{ID: id}
	d.run(r)
	return r, d.done("run " + id)
}

func (e *encoder) run(r *Run) {
	e.bools(r.Seen, r.Leased, r.Preempted, r.Returned, r.Attempted, r.Gone, r.Running)
	e.b = append(e.b, byte(r.End), byte(r.Outcome))
	e.uint(uint64(r.Index))
	e.string(r.LeasedNode)
	e.string(r.RunningNode)
	if r.Running { // then it has no retryAfter, and older programs do not look at this one
		e.int(r.RunningSince)
	} else {
		e.int(r.RetryAfter)
	}
	e.int(r.ReadyAfter)
}

func (d *decoder) run(r *Run) {
	d.bools(&r.Seen, &r.Leased, &r.Preempted, &r.Returned, &r.Attempted, &r.Gone, &r.Running)
	r.End, r.Outcome = RunEnd(d.byte()), Outcome(d.byte())
	r.Index = d.uint32()
	r.LeasedNode, r.RunningNode = d.string(), d.string()
	r.RetryAfter, r.ReadyAfter = d.int(), d.int()
	if r.Running {
		r.RunningSince, r.RetryAfter = r.RetryAfter, 0
	}
}

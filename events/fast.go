package events

// Decoder reads payloads as protobuf-go would, without copying and, once its
// memory has grown to the messages it meets, without allocating. The zero value
// is ready; it is not for concurrent use.
//
// It walks every message that the contract declares, also where nothing is
// kept of it, for protobuf-go refuses what is malformed in there too. Values go
// straight to where they end up, field by field, and that is all of proto3's
// merging: the last scalar wins, repeated fields grow, and a oneof that gets
// another member forgets what the one before left.
//
// Submits, errors, names and containers are cut from arrays that all events of
// a message share. An array that has to grow moves; what was cut before stays
// behind in the old one, complete, as only the event being read is written to.
type Decoder struct {
	seq        Sequence
	submits    []Submit
	errors     []Error
	names      []string
	containers []ContainerError
}

// keep is how many elements of each kind a Decoder holds on to between
// messages: a larger message's memory is given back.
const keep = 4096

// Decode reads a payload. It returns an *Unreadable for what is no event
// sequence. The Sequence and all that it leads to belong to the Decoder and
// hold until its next Decode; its strings are the payload's own bytes, so the
// payload must not be written to until then. Who keeps a string longer clones it.
func (d *Decoder) Decode(payload []byte) (*Sequence, error) {
	d.release()
	if err := d.read(payload); err != nil {
		return nil, err
	}
	return &d.seq, nil
}

// read reads a payload into seq.
func (d *Decoder) read(payload []byte) error {
	if err := d.sequence(payload); err != nil {
		return &Unreadable{Reason: NotProtobuf, Err: err}
	}
	return d.seq.check()
}

// release forgets the last message, so that its payload can be collected.
func (d *Decoder) release() {
	d.seq = Sequence{Events: emptied(d.seq.Events)}
	d.submits, d.errors = emptied(d.submits), emptied(d.errors)
	d.names, d.containers = emptied(d.names), emptied(d.containers)
}

func emptied[T any](s []T) []T {
	if cap(s) > keep {
		return nil
	}
	clear(s)
	return s[:0]
}

func (d *Decoder) sequence(payload []byte) error {
	b := view(payload)
	for len(b) > 0 {
		var f field
		var err error
		switch f, b = next(b); f.tag {
		case malformed:
			return errWire
		case 1<<3 | wireBytes:
			err = verified(&d.seq.Queue, f.data)
		case 2<<3 | wireBytes:
			err = verified(&d.seq.JobSet, f.data)
		case fieldEvents<<3 | wireBytes:
			end := len(payload) - len(b)
			d.seq.Events = append(d.seq.Events, Event{Raw: payload[end-len(f.data) : end : end]})
			err = d.event(f.data, &d.seq.Events[len(d.seq.Events)-1])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// event reads what Event declares. In the events that fold nothing it keeps nothing.
func (d *Decoder) event(b string, ev *Event) error {
	before := d.mark()
	var last uint32 // last: the oneof's member so far
	for len(b) > 0 {
		var f field
		f, b = next(b)
		if f.tag == malformed {
			return errWire
		}
		if f.tag == 18<<3|wireBytes {
			if err := timestamp(f.data, &ev.Created); err != nil {
				return err
			}
			continue
		}
		m := memberOf(f.tag)
		if m == nil {
			continue
		}
		if f.tag != last && last != 0 {
			d.back(before)
			*ev = Event{Created: ev.Created, Raw: ev.Raw}
		}
		last, ev.Kind = f.tag, m.kind
		if err := d.member(m, f.data, ev); err != nil {
			return err
		}
	}
	if ev.Submit != nil {
		ev.Submit.InitContainers = since(d.names, before.names)
	}
	return nil
}

// member says where a member of Event's oneof has what we read. A number that
// it lacks is 0, which no field has.
type member struct {
	kind      Kind
	job, run  uint32 // ids
	node      uint32 // a string
	resources uint32 // repeated KubernetesResourceInfo
	errors    uint32 // repeated Error
}

// members are those that the contract declares, by number: Armada's, and ours from firstOurs.
var (
	members = [...]member{
		1:  {kind: SubmitJob},
		4:  {kind: Other, job: 3}, // ReprioritisedJob
		5:  {kind: CancelJob, job: 3},
		6:  {kind: CancelJobSet},
		7:  {kind: CancelledJob, job: 3},
		8:  {kind: JobSucceeded, job: 3},
		9:  {kind: JobErrors, job: 3, errors: 2},
		10: {kind: RunLeased, job: 10, run: 11, node: 4},
		11: {kind: RunAssigned, job: 4, run: 5},
		12: {kind: RunRunning, job: 4, run: 5, resources: 3},
		13: {kind: RunSucceeded, job: 4, run: 5},
		14: {kind: RunErrors, job: 4, run: 5, errors: 3},
		19: {kind: RunPreempted, job: 5, run: 6},
		22: {kind: Other, job: 4}, // JobRequeued
	}
	ours = [...]member{
		{kind: RunTerminated, job: 1, run: 2},
		{kind: SubmitJob}, // republished
		{kind: KnownRun, job: 1, run: 2, node: 3},
		{kind: EndedRun, job: 1, run: 2, node: 3},
		{kind: JobOrder},
	}
)

const firstOurs = 1001

func memberOf(tag uint32) *member {
	num := tag >> 3
	switch {
	case tag&wireType != wireBytes:
		return nil
	case num < uint32(len(members)) && members[num] != member{}:
		return &members[num]
	case num >= firstOurs && num < firstOurs+uint32(len(ours)):
		return &ours[num-firstOurs]
	}
	return nil
}

func (d *Decoder) member(m *member, b string, ev *Event) error {
	switch m.kind {
	case SubmitJob:
		return d.submitJob(b, ev)
	case CancelJobSet:
		return cancelJobSet(b, ev)
	case JobOrder:
		return jobOrder(b, ev)
	case Other:
		err := d.fields(m, b, ev)
		ev.JobID = "" // checked, like every id, but not kept
		return err
	default:
		return d.fields(m, b, ev)
	}
}

// fields reads the fields that m names. They are all of wire type bytes.
func (d *Decoder) fields(m *member, b string, ev *Event) error {
	for len(b) > 0 {
		var f field
		f, b = next(b)
		if f.tag == malformed {
			return errWire
		}
		if f.tag&wireType != wireBytes {
			continue
		}
		var err error
		switch f.tag >> 3 {
		case m.job:
			err = verified(&ev.JobID, f.data)
		case m.run:
			err = verified(&ev.RunID, f.data)
		case m.node:
			ev.Node = f.data
		case m.resources:
			err = resourceInfo(f.data, ev)
		case m.errors:
			err = d.jobError(f.data, ev)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mark is how much of the shared arrays is in use.
type mark struct{ submits, errors, names, containers int }

func (d *Decoder) mark() mark {
	return mark{len(d.submits), len(d.errors), len(d.names), len(d.containers)}
}

// back gives up what was cut since the mark.
func (d *Decoder) back(m mark) {
	d.submits, d.errors = cut(d.submits, m.submits), cut(d.errors, m.errors)
	d.names, d.containers = cut(d.names, m.names), cut(d.containers, m.containers)
}

// cut shortens s to n and holds on to nothing beyond.
func cut[T any](s []T, n int) []T {
	clear(s[n:])
	return s[:n]
}

// since is what s got after it had n; nil when nothing.
func since[T any](s []T, n int) []T {
	if len(s) == n {
		return nil
	}
	return s[n:len(s):len(s)]
}

package e2e

import (
	"bytes"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/eventlog/recording"
)

// jobsBegin is how the ids of all recorded jobs begin: part of their time.
const jobsBegin = "01m7x"

// History is events without end: recordings again and again, and histories of groups, side by
// side, each time with jobs and job sets of its own, so that every failed run is a new one.
type History struct {
	running []copying
	copies  int
}

// pool are sources that take turns.
type pool struct {
	sources [][]recorded
	jobs    string // how the ids of their jobs begin, as long as the id of a copy
	next    int
}

// Event is one message of a history.
type Event struct {
	Key     string
	Payload []byte
}

type recorded struct {
	publish int64
	message *pb.EventSequence
}

type copying struct {
	from   *pool
	source []recorded
	id     string // begins the ids of its jobs
	next   int
}

// OpenHistory reads the recordings. So many copies of them run side by side, and as many
// histories of groups.
func OpenHistory(files []string, width int) (*History, error) {
	recordings := &pool{jobs: jobsBegin}
	for _, file := range files {
		entries, err := recording.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var source []recorded
		for _, e := range entries {
			m := &pb.EventSequence{}
			if err := proto.Unmarshal(e.Message.Payload, m); err != nil {
				return nil, fmt.Errorf("%s at %v: %w", file, e.Message.Position, err)
			}
			source = append(source, recorded{e.Message.Publish, m})
		}
		recordings.sources = append(recordings.sources, source)
	}
	groups, err := groupHistories()
	if err != nil {
		return nil, err
	}
	h := &History{}
	for range width {
		h.running = append(h.running, h.begin(recordings), h.begin(groups))
	}
	return h, nil
}

func (h *History) begin(from *pool) copying {
	c := copying{from: from, source: from.sources[from.next%len(from.sources)], id: fmt.Sprintf("c%04x", h.copies)}
	from.next++
	h.copies++
	return c
}

// Next returns the next event, as if it were made now.
func (h *History) Next(now time.Time) (Event, error) {
	// The copies take turns.
	c := h.running[0]
	h.running = h.running[1:]
	r := c.source[c.next]
	m := proto.CloneOf(r.message)
	m.JobSetName += "-" + c.id
	shift := (now.UnixNano() - r.publish) / int64(time.Second)
	for _, ev := range m.Events {
		if ev.Created != nil {
			ev.Created.Seconds += shift
		}
	}
	payload, err := proto.Marshal(m)
	if err != nil {
		return Event{}, fmt.Errorf("copy an event: %w", err)
	}
	out := Event{Key: m.JobSetName, Payload: bytes.ReplaceAll(payload, []byte(c.from.jobs), []byte(c.id))}
	if c.next++; c.next == len(c.source) {
		c = h.begin(c.from)
	}
	h.running = append(h.running, c)
	return out, nil
}

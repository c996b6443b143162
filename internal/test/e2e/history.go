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

// History is events without end: recordings again and again, side by side, each
// time with jobs and job sets of its own, so that every failed run is a new one.
type History struct {
	sources [][]recorded
	running []copying
	copies  int
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
	source []recorded
	id     string // begins the ids of its jobs
	next   int
}

// OpenHistory reads the recordings. So many copies run side by side.
func OpenHistory(files []string, width int) (*History, error) {
	h := &History{}
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
		h.sources = append(h.sources, source)
	}
	for range width {
		h.running = append(h.running, h.begin())
	}
	return h, nil
}

func (h *History) begin() copying {
	c := copying{source: h.sources[h.copies%len(h.sources)], id: fmt.Sprintf("c%04x", h.copies)}
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
	out := Event{Key: m.JobSetName, Payload: bytes.ReplaceAll(payload, []byte(jobsBegin), []byte(c.id))}
	if c.next++; c.next == len(c.source) {
		c = h.begin()
	}
	h.running = append(h.running, c)
	return out, nil
}

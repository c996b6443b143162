package standin

import (
	"errors"
	"fmt"
	"io"

	"github.com/refloat/refloat/internal/eventlog"
)

// lookout reads the events topic as Armada's Lookout does, for the state that it
// shows of a job. It also sees what would stop an ingester of Armada's.
type lookout struct {
	w       *World
	readers []eventlog.Reader
	states  map[string]string
}

// Lookout is the state in which a reader of the events topic shows a job, as QUEUED
// or FAILED; "" if it does not know it.
func (w *World) Lookout(id string) string {
	w.t.Helper()
	w.seen.read()
	return w.seen.states[id]
}

// read takes what is new.
func (l *lookout) read() {
	t := l.w.t
	t.Helper()
	for p := len(l.readers); p < l.w.cfg.Log.Partitions(); p++ {
		r, err := l.w.cfg.Log.Open(p, eventlog.Start)
		if err != nil {
			t.Fatalf("armadatest: read the events topic: %v", err)
		}
		t.Cleanup(closer(t, r))
		l.readers = append(l.readers, r)
	}
	msgs := make([]eventlog.Message, 100)
	for _, r := range l.readers {
		for {
			n, err := r.Read(msgs)
			if err != nil {
				t.Fatalf("armadatest: read the events topic: %v", err)
			}
			if n == 0 {
				break
			}
			for i := range n {
				l.message(&msgs[i])
			}
		}
	}
}

func closer(t interface{ Errorf(string, ...any) }, c io.Closer) func() {
	return func() {
		if err := c.Close(); err != nil {
			t.Errorf("armadatest: close a reader: %v", err)
		}
	}
}

func (l *lookout) message(m *eventlog.Message) {
	err := scan(m.Payload, func(f field) error {
		if f.number != 5 {
			return nil
		}
		return scan(f.bytes, l.event)
	})
	if err != nil {
		l.w.violate("message %v of job set %q: %v", m.Position, m.Key, err)
	}
}

// event takes one field of an Event.
func (l *lookout) event(f field) error {
	show := func(id int, state string) error {
		job, err := walk(f.bytes, id)
		if err != nil {
			return err
		}
		l.show(job.text(), state, f.number == evJobRequeued)
		return nil
	}
	switch f.number {
	case evSubmitJob:
		return show(14, "QUEUED")
	case evJobRequeued:
		return errors.Join(l.checkRequeued(f.bytes), show(4, "QUEUED"))
	case evJobRunLeased:
		if overlay, err := walk(f.bytes, 9); err != nil || overlay.number == 0 {
			return errors.Join(err, errors.New("JobRunLeased without pod_requirements_overlay crashes Armada's ingester"))
		}
		return show(10, "LEASED")
	case evJobRunAssigned:
		return show(4, "PENDING")
	case evJobRunRunning:
		return show(4, "RUNNING")
	case evJobSucceeded:
		return show(3, "SUCCEEDED")
	case evCancelledJob:
		return show(3, "CANCELLED")
	case evJobErrors:
		return scan(f.bytes, func(e field) error {
			state, err := failedState(e)
			if err != nil || state == "" {
				return err
			}
			return show(3, state)
		})
	}
	return nil
}

// failedState is what a terminal Error in JobErrors makes of the job.
func failedState(e field) (string, error) {
	if e.number != 2 {
		return "", nil
	}
	terminal, state := false, "FAILED"
	err := scan(e.bytes, func(f field) error {
		switch f.number {
		case 1:
			terminal = f.value != 0
		case errPreempted:
			state = "PREEMPTED"
		case errJobRejected:
			state = "REJECTED"
		}
		return nil
	})
	if !terminal {
		state = ""
	}
	return state, err
}

// show sets a state. What is over stays, but for a JobRequeued.
func (l *lookout) show(job, state string, requeued bool) {
	switch l.states[job] {
	case "SUCCEEDED", "CANCELLED", "FAILED", "PREEMPTED", "REJECTED":
		if !requeued {
			return
		}
	}
	l.states[job] = state
}

// checkRequeued holds what a JobRequeued must have lest it crash Armada's ingester,
// or stop its scheduler.
func (l *lookout) checkRequeued(b []byte) error {
	info, err := walk(b, 2)
	switch {
	case err != nil:
		return err
	case info.number == 0:
		return errors.New("JobRequeued without scheduling_info crashes Armada's ingester")
	}
	if _, err := parseInfo(info.bytes); err != nil {
		return fmt.Errorf("JobRequeued stops Armada's scheduler: %w", err)
	}
	return nil
}

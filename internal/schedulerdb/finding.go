package schedulerdb

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// WholeMessage is the place of a finding that concerns all of a message.
const WholeMessage = -1

// Finding is what is in the way of a message or of one of its events. It is to be
// parked: the rest goes on.
type Finding struct {
	Event  int // its place in the message, or WholeMessage
	Kind   Kind
	Reason string
}

// Kind says what Armada's own ingester does about it.
type Kind int

// The kinds of findings.
const (
	UnknownKind Kind = iota
	// Unreadable: it skips the message, and counts it.
	Unreadable
	// Skipped: it skips the event, and counts it.
	Skipped
	// Crash: it panics, and again after each restart.
	Crash
	// Blocked: PostgreSQL refuses the batch, and it tries again for ever.
	Blocked
)

var kinds = [...]string{"Unknown", "Unreadable", "Skipped", "Crash", "Blocked"}

// String is the kind's name, for metrics and people.
func (k Kind) String() string { return kinds[k] }

type (
	crashError   string
	refusedError string
	// unreadableError is of a part that stands in bytes for us, and is a message
	// for Armada: there it is the whole that cannot be read.
	unreadableError struct {
		what string
		err  error
	}
)

func (e crashError) Error() string       { return string(e) }
func (e refusedError) Error() string     { return string(e) }
func (e *unreadableError) Error() string { return e.what + ": " + e.err.Error() }
func (e *unreadableError) Unwrap() error { return e.err }

func finding(event int, err error) Finding {
	f := Finding{Event: event, Kind: Skipped, Reason: err.Error()}
	if crash := crashError(""); errors.As(err, &crash) {
		f.Kind = Crash
	} else if no := refusedError(""); errors.As(err, &no) {
		f.Kind = Blocked
	}
	return f
}

const (
	// maxUser is varchar(512), in characters.
	maxUser = 512
	// maxIndexed bounds the texts of one index entry, in bytes. PostgreSQL takes
	// 2704 after compression; what compresses well could be longer there.
	maxIndexed = 2600
)

// The times that PostgreSQL takes, in Unix seconds, to the year: from 4713 BC
// until 294276.
const (
	minTime = -210863520000
	maxTime = 9224286393600
)

// Refused says why PostgreSQL would not take an operation, or nil. A Converter has
// asked; who makes operations of its own asks too.
func Refused(op Op) error {
	var c check
	switch o := op.(type) {
	case *InsertJob:
		c.indexed("job_id, queue and job_set", o.JobID, o.Queue, o.JobSet)
		c.text("user_id", o.UserID)
	case *SetQueued:
		c.text("job_id", o.JobID)
	case *SetSchedulingInfo:
		c.text("job_id", o.JobID)
	case *SetValidated:
		c.text("job_id", o.JobID)
		for _, pool := range o.Pools {
			c.text("pools", pool)
		}
	case *SetPriority:
		c.named(o.JobID, o.Queue, o.JobSet)
		c.user("reprioritise_user", o.User)
	case *SetSetPriority:
		c.named("", o.Queue, o.JobSet)
		c.user("reprioritise_user", o.User)
	case *RequestCancel:
		c.named(o.JobID, o.Queue, o.JobSet)
		c.user("cancel_user", o.User)
		c.user("cancel_reason", o.Reason)
	case *RequestSetCancel:
		c.named("", o.Queue, o.JobSet)
		c.user("cancel_user", o.User)
		c.user("cancel_reason", o.Reason)
	case *RequestPreemption:
		c.named(o.JobID, o.Queue, o.JobSet)
		c.user("preempt_user", o.User)
		c.text("preempt_reason", o.Reason)
	case *EndPreemption:
		c.text("run_id", o.RunID)
	case *SucceedJob:
		c.text("job_id", o.JobID)
	case *FailJob:
		c.text("job_id", o.JobID)
	case *CancelJob:
		c.text("job_id", o.JobID)
		c.time(o.At)
	case *ReviveJob:
		c.text("job_id", o.JobID)
	case *StopRun:
		c.text("run_id", o.RunID)
		c.time(o.At)
	case *InsertRun:
		c.indexed("job_id, queue and job_set", o.JobID, o.Queue, o.JobSet)
		c.indexed("run_id", o.RunID)
		c.indexed("executor", o.Executor)
		c.text("node", o.Node)
		c.text("pool", o.Pool)
		c.time(o.Leased)
	case *MarkRun:
		c.text("run_id", o.RunID)
		c.time(o.At)
	case *FailRun:
		c.text("run_id", o.RunID)
		c.time(o.At)
	case *InsertRunError:
		c.indexed("run_id", o.RunID)
		c.indexed("job_id", o.JobID)
	case *InsertMarker:
		c.time(o.Created)
	}
	if c.err == "" {
		return nil
	}
	return refusedError(fmt.Sprintf("%s: %s", strings.TrimPrefix(fmt.Sprintf("%T", op), "*schedulerdb."), c.err))
}

// check keeps the first thing that is wrong.
type check struct{ err string }

func (c *check) fail(column, why string) {
	if c.err == "" {
		c.err = column + " " + why
	}
}

func (c *check) text(column, text string) {
	if strings.IndexByte(text, 0) >= 0 {
		c.fail(column, "has a NUL byte, which PostgreSQL does not take in text")
	}
	if !utf8.ValidString(text) {
		c.fail(column, "is not valid UTF-8")
	}
}

func (c *check) indexed(columns string, texts ...string) {
	size := 0
	for _, text := range texts {
		c.text(columns, text)
		size += len(text)
	}
	if size > maxIndexed {
		c.fail(columns, fmt.Sprintf("take %d bytes, and %d are what fits into an index entry", size, maxIndexed))
	}
}

func (c *check) named(job, queue, set string) {
	c.text("job_id", job)
	c.text("queue", queue)
	c.text("job_set", set)
}

func (c *check) user(column, text string) {
	c.text(column, text)
	if n := utf8.RuneCountInString(text); n > maxUser {
		c.fail(column, fmt.Sprintf("has %d characters, and the column holds %d", n, maxUser))
	}
}

func (c *check) time(at time.Time) {
	if at.Unix() < minTime || at.Unix() > maxTime {
		c.fail("created", "is a time that PostgreSQL does not know")
	}
}

package audit

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
)

// Kind says what is different. It is stable: reports and scripts use it.
type Kind string

// The kinds of differences.
const (
	// Of records, which are derived again from input.
	RecordChanged    Kind = "record-changed"    // a record has other content than deciding again gives
	RecordDropped    Kind = "record-dropped"    // the log does not have a record
	RecordDoubled    Kind = "record-doubled"    // the log has a record twice
	RecordAdded      Kind = "record-added"      // the input does not produce a record
	RecordsReordered Kind = "records-reordered" // the log has the records in another order
	PolicyChanged    Kind = "policy-changed"    // policies are not those by which the log says it was decided
	SemanticsChanged Kind = "semantics-changed" // the log names another version than the one that decided
	// Of envelopes, which form the chain.
	EnvelopeChanged    Kind = "envelope-changed"    // an envelope is not the one that its successor names
	EnvelopeDamaged    Kind = "envelope-damaged"    // what stands where the next envelope should be is none
	EnvelopeDropped    Kind = "envelope-dropped"    // an envelope is gone, and later ones are here
	EnvelopesReordered Kind = "envelopes-reordered" // an envelope stands before or after its place
	// Of input.
	InputDropped Kind = "input-dropped" // events have fewer messages than an envelope covers
	InputAdded   Kind = "input-added"   // events have more
	InputChanged Kind = "input-changed" // a message that was decided cannot be read now
	InputGone    Kind = "input-gone"    // a log no longer holds what is needed: it was deleted, as by retention
	// Of any log.
	LogDamaged Kind = "log-damaged" // the log's own checksums do not fit
)

// Difference is the first place where a partition's logs are not what deriving them again
// gives. It is an error: that of its class (ErrDifferent, chain.ErrMissing,
// eventlog.ErrTrimmed, eventlog.ErrCorrupt).
type Difference struct {
	Kind     Kind
	Envelope uint64            // 0: none in particular
	At       eventlog.Position // of that envelope in the decision log; eventlog.Start: unknown
	Event    eventlog.Position // origin position of the input message; eventlog.Start: none in particular
	// The two readings of the record: that of the log, and the derived one. Either may be nil.
	Logged, Derived chain.Record
	// Fields are those in which both readings differ, if they are of the same record.
	Fields []FieldDifference
	cause  error
}

// FieldDifference is one field in which two readings of a record differ.
type FieldDifference struct {
	Field   string `json:"field"`
	Logged  string `json:"logged"`
	Derived string `json:"derived"`
}

func (d *Difference) Error() string { return d.cause.Error() }

// Unwrap returns the error of its class.
func (d *Difference) Unwrap() error { return d.cause }

// differs makes a difference of class ErrDifferent.
func differs(kind Kind, envelope uint64, format string, args ...any) *Difference {
	return &Difference{
		Kind: kind, Envelope: envelope, At: eventlog.Start, Event: eventlog.Start,
		cause: fmt.Errorf("%w: envelope %d%s", ErrDifferent, envelope, fmt.Sprintf(format, args...)),
	}
}

// KindOf returns the kind of an error of Verify; false: it is none of a difference.
func KindOf(err error) (Kind, bool) {
	if d, ok := errors.AsType[*Difference](err); ok {
		return d.Kind, true
	}
	return "", false
}

// fieldsOf lists the fields in which two records of one type differ.
func fieldsOf(logged, derived chain.Record) (all []FieldDifference) {
	a, b := reflect.ValueOf(logged), reflect.ValueOf(derived)
	if a.Type() != b.Type() {
		return nil
	}
	a, b = a.Elem(), b.Elem()
	for i := range a.NumField() {
		if x, y := a.Field(i).Interface(), b.Field(i).Interface(); !reflect.DeepEqual(x, y) {
			all = append(all, FieldDifference{a.Type().Field(i).Name, textOf(x), textOf(y)})
		}
	}
	return all
}

func textOf(v any) string {
	switch v := reflect.ValueOf(v); {
	case v.Kind() == reflect.Pointer && v.IsNil():
		return "none"
	case v.Kind() == reflect.Pointer:
		return fmt.Sprintf("%+v", v.Elem())
	case v.Kind() == reflect.Array && v.Type().Elem().Kind() == reflect.Uint8, v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8:
		return fmt.Sprintf("%x", v)
	case v.Kind() == reflect.String:
		return fmt.Sprintf("%q", v)
	}
	return fmt.Sprintf("%+v", v)
}

// identity names what a record is about: two records with one identity are readings of
// the same one.
func identity(r chain.Record) string {
	switch r := r.(type) {
	case *chain.Decision:
		return fmt.Sprint("run ", r.Position, r.JobID, " ", r.RunID)
	case *chain.NotDecided:
		return fmt.Sprint("run ", r.Position, r.JobID, " ", r.RunID)
	case *chain.Parked:
		return fmt.Sprint("parked ", r.Position, r.Event)
	case *chain.RetryReady:
		return fmt.Sprint("ready ", r.Position, r.JobID, " ", r.RunID)
	case *chain.GroupBound:
		return fmt.Sprint("bound ", r.Position, r.Group, " ", r.JobID)
	case *chain.GroupFinding:
		return fmt.Sprint("finding ", r.Position, r.Group, " ", r.JobID)
	case *chain.MemberChange:
		return fmt.Sprint(r.Change, " ", r.Position, r.JobID)
	case *chain.UnitEnded:
		return fmt.Sprint("unit ", r.Position, r.Member.Group, " ", r.Member.Part, r.Member.Replica)
	case *chain.OrderAnswered:
		return fmt.Sprint("order ", r.Position, r.JobID, " ", r.OrderID)
	case *chain.GroupEnded:
		return fmt.Sprint("group ", r.Position, r.Group)
	}
	return fmt.Sprintf("%T", r)
}

// KindName is the name of a kind of record, as reports count them.
func KindName(r chain.Record) string {
	switch r := r.(type) {
	case *chain.Decision:
		return r.Kind()
	case *chain.MemberChange:
		return r.Change.String()
	}
	return reflect.TypeOf(r).Elem().Name()
}

package sink_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/sink"
)

// TestCompareNamesEachField changes every field of every kind of row by itself.
func TestCompareNamesEachField(t *testing.T) {
	t.Parallel()
	fresh := func() *jobdb.Contents {
		return &jobdb.Contents{Changes: jobdb.Changes{
			Jobs: []*jobdb.Job{{JobID: "k"}}, Runs: []*jobdb.Run{{JobID: "k", RunID: "r"}}, Decisions: []*jobdb.Decision{{}},
			NotDecided: []*jobdb.NotDecided{{}}, Parked: []*jobdb.Parked{{}}, Ready: []*jobdb.Ready{{}}, Activations: []*jobdb.Activation{{}}, Releases: []*jobdb.Release{{}},
			Groups: []*jobdb.Group{{}}, Units: []*jobdb.Unit{{}}, GroupRecords: []*jobdb.GroupRecord{{}},
		}}
	}
	if diff := sink.Compare(fresh(), fresh()); len(diff) != 0 {
		t.Fatalf("equal rows differ: %v", diff)
	}
	rows := func(c *jobdb.Contents) []reflect.Value {
		var list []reflect.Value
		changes := reflect.ValueOf(&c.Changes).Elem()
		for field, f := range changes.Fields() {
			if field.Name != "Costs" && field.Name != "Replaced" && field.Name != "Recounted" { // they are no rows
				list = append(list, f.Index(0).Elem())
			}
		}
		return append(list, reflect.ValueOf(&c.Positions).Elem())
	}
	fields := 0
	for kind := range rows(fresh()) {
		for n := 0; ; n++ {
			got := fresh()
			left := n
			name := change(rows(got)[kind], &left)
			if name == "" {
				break
			}
			fields++
			diff := sink.Compare(fresh(), got)
			if len(diff) == 2 && keyField(name) {
				continue // another row: one is missing, one is too many
			}
			if len(diff) != 1 || !strings.HasSuffix(diff[0].Field, name) || diff[0].Want == diff[0].Got {
				t.Errorf("field %s of row kind %d changed: %v", name, kind, diff)
			}
		}
	}
	if fields < 120 {
		t.Errorf("only %d fields were changed", fields)
	}
}

// keyField says whether a name is part of some kind of row's key.
func keyField(name string) bool {
	switch name {
	case "ID", "JobID", "RunID", "Number", "Seq", "Record", "Ledger", "Entry", "Batch":
		return true
	}
	return false
}

// change changes the n-th field, counted through nested structs, and names it.
func change(v reflect.Value, n *int) string {
	for i := range v.NumField() {
		f := v.Field(i)
		name := v.Type().Field(i).Name
		if f.Kind() == reflect.Struct {
			if inner := change(f, n); inner != "" {
				return inner
			}
			continue
		}
		if *n > 0 {
			*n--
			continue
		}
		switch f.Kind() {
		case reflect.String:
			f.SetString("changed")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int, reflect.Int32, reflect.Int64:
			f.SetInt(7)
		case reflect.Uint8, reflect.Uint32, reflect.Uint64:
			f.SetUint(3)
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Array:
			f.Index(0).SetUint(9)
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		default:
			panic(f.Kind())
		}
		return name
	}
	return ""
}

func TestDifferenceReads(t *testing.T) {
	t.Parallel()
	want := &jobdb.Contents{Changes: jobdb.Changes{Jobs: []*jobdb.Job{{JobID: "a", State: jobdb.JobQueued}, {JobID: "b"}}, Parked: []*jobdb.Parked{{Where: jobdb.Where{Seq: 7, Record: 2}}}}}
	got := &jobdb.Contents{Changes: jobdb.Changes{Jobs: []*jobdb.Job{{JobID: "a", State: jobdb.JobFailed, Queue: "q"}, {JobID: "c"}}}}
	var lines []string
	for _, d := range sink.Compare(want, got) {
		lines = append(lines, d.String())
	}
	expected := "jobs a: Queue is \"q\", want \"\"\njobs a: State is Failed, want Queued\njobs b is missing\njobs c should not be there\nparked 7/2 is missing"
	if s := strings.Join(lines, "\n"); s != expected {
		t.Errorf("got\n%s\nwant\n%s", s, expected)
	}
}

package sink

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
)

// Difference is one difference between two sets of rows.
type Difference struct {
	Table     string
	Key       string
	Field     string // empty: only one side has the row
	Want, Got string // empty: there is no such row
}

// String returns the difference in one line.
func (d Difference) String() string {
	switch {
	case d.Field != "":
		return fmt.Sprintf("%s %s: %s is %s, want %s", d.Table, d.Key, d.Field, d.Got, d.Want)
	case d.Got == "":
		return fmt.Sprintf("%s %s is missing", d.Table, d.Key)
	}
	return fmt.Sprintf("%s %s should not be there", d.Table, d.Key)
}

// Compare returns each difference between the rows that follow from the logs and those
// in a database, table by table in the order of the keys.
func Compare(want, got *jobdb.Contents) []Difference {
	c := comparison{}
	c.row("positions", fmt.Sprintf("of partition %d", want.Partition), reflect.ValueOf(want.Positions), reflect.ValueOf(got.Positions))
	compareRows(&c, "jobs", want.Jobs, got.Jobs, func(j *jobdb.Job) rowKey { return rowKey{job: j.JobID} })
	compareRows(&c, "runs", want.Runs, got.Runs, func(r *jobdb.Run) rowKey { return rowKey{job: r.JobID, run: r.RunID} })
	compareRows(&c, "decisions", want.Decisions, got.Decisions, func(d *jobdb.Decision) rowKey { return rowKey{seq: d.Number} })
	compareRows(&c, "not_decided", want.NotDecided, got.NotDecided, func(n *jobdb.NotDecided) rowKey { return rowKey{seq: n.Seq, record: n.Record} })
	compareRows(&c, "ready", want.Ready, got.Ready, func(r *jobdb.Ready) rowKey { return rowKey{seq: r.Seq, record: r.Record} })
	compareRows(&c, "parked", want.Parked, got.Parked, func(p *jobdb.Parked) rowKey { return rowKey{seq: p.Seq, record: p.Record} })
	compareRows(&c, "activations", want.Activations, got.Activations, func(a *jobdb.Activation) rowKey { return rowKey{seq: a.Seq, record: a.Record} })
	compareRows(&c, "groups", want.Groups, got.Groups, func(g *jobdb.Group) rowKey { return rowKey{job: g.ID} })
	compareRows(&c, "units", want.Units, got.Units, func(u *jobdb.Unit) rowKey { return rowKey{job: u.ID} })
	compareRows(&c, "group_records", want.GroupRecords, got.GroupRecords, func(r *jobdb.GroupRecord) rowKey { return rowKey{seq: r.Seq, record: r.Where.Record} })
	compareRows(&c, "releases", want.Releases, got.Releases, func(r *jobdb.Release) rowKey { return rowKey{from: r.From} })
	for _, m := range got.Miscounted {
		c.found = append(c.found, Difference{Table: "counts", Key: m.Of, Field: "n", Want: fmt.Sprint(m.Want), Got: fmt.Sprint(m.Got)})
	}
	return c.found
}

// rowKey is a row's key within its table: a job, a job's run, a number, an
// envelope and the index in it, or a position.
type rowKey struct {
	job, run string
	seq      uint64
	record   uint32
	from     eventlog.Position
}

func (k rowKey) compare(o rowKey) int {
	return cmp.Or(cmp.Compare(k.job, o.job), cmp.Compare(k.run, o.run), cmp.Compare(k.seq, o.seq), cmp.Compare(k.record, o.record), k.from.Compare(o.from))
}

func (k rowKey) in(table string) string {
	switch table {
	case "jobs", "groups", "units":
		return k.job
	case "runs":
		return k.job + " run " + k.run
	case "decisions":
		return fmt.Sprint(k.seq)
	case "releases":
		return "from " + k.from.String()
	}
	return fmt.Sprintf("%d/%d", k.seq, k.record)
}

type comparison struct{ found []Difference }

func compareRows[T any](c *comparison, table string, want, got []*T, key func(*T) rowKey) {
	wanted, present := byKey(want, key), byKey(got, key)
	keys := slices.Collect(maps.Keys(wanted))
	for k := range present {
		if wanted[k] == nil {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, rowKey.compare)
	for _, k := range keys {
		w, g, name := wanted[k], present[k], k.in(table)
		switch {
		case g == nil:
			c.found = append(c.found, Difference{Table: table, Key: name, Want: "a row"})
		case w == nil:
			c.found = append(c.found, Difference{Table: table, Key: name, Got: "a row"})
		default:
			c.row(table, name, reflect.ValueOf(*w), reflect.ValueOf(*g))
		}
	}
}

func byKey[T any](rows []*T, key func(*T) rowKey) map[rowKey]*T {
	m := make(map[rowKey]*T, len(rows))
	for _, r := range rows {
		m[key(r)] = r
	}
	return m
}

// row compares two rows field by field; an empty list equals a missing one.
func (c *comparison) row(table, key string, want, got reflect.Value) {
	for i := range want.NumField() {
		w, g, field := want.Field(i), got.Field(i), want.Type().Field(i)
		if w.Kind() == reflect.Struct {
			before := len(c.found)
			c.row(table, key, w, g)
			if !field.Anonymous {
				for k := before; k < len(c.found); k++ {
					c.found[k].Field = field.Name + "." + c.found[k].Field
				}
			}
			continue
		}
		if w.Kind() == reflect.Slice && w.Len() == 0 && g.Len() == 0 || reflect.DeepEqual(w.Interface(), g.Interface()) {
			continue
		}
		c.found = append(c.found, Difference{Table: table, Key: key, Field: field.Name, Want: show(w), Got: show(g)})
	}
}

// show renders a value in one line.
func show(v reflect.Value) string {
	switch {
	case v.Kind() == reflect.Pointer && v.IsNil():
		return "none"
	case v.Kind() == reflect.Pointer:
		return fmt.Sprintf("%+v", v.Elem().Interface())
	case v.Kind() == reflect.String && v.Type().PkgPath() == "":
		return fmt.Sprintf("%q", v.String())
	case v.Kind() == reflect.Slice, v.Kind() == reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return fmt.Sprintf("%x", v.Interface())
		}
		return fmt.Sprintf("%q", v.Interface())
	}
	return fmt.Sprint(v.Interface())
}

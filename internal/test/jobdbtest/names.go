package jobdbtest

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/table"
)

// Names writes a history with names of any length, and checks that those which contain a text are found: all that are in the
// rows, and no others.
func Names(t *testing.T, db jobdb.Store, open func() jobdb.Reader) {
	t.Helper()
	const decisions = 2_000
	Fill(t, db, decisions)
	long := strings.Repeat("Long", 60)
	tx, err := db.Begin(t.Context(), 9)
	if err != nil {
		t.Fatal(err)
	}
	from := tx.Positions()
	changes := &jobdb.Changes{
		Jobs:   []*jobdb.Job{{Partition: 9, JobID: "j", Queue: "ÜBER%_\\'\"?~{jobs}", JobSet: "Some_Set", Known: true}},
		Runs:   []*jobdb.Run{{Partition: 9, JobID: "j", RunID: "r", Node: long, Error: jobdb.RunError{Category: long + "c"}}},
		Groups: []*jobdb.Group{{Partition: 9, ID: "g", Queue: "q1", Name: "gang/" + long}},
	}
	if err := tx.Write(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context(), from, at(1)); err != nil {
		t.Fatal(err)
	}
	reader := open()
	defer reader.Close()
	view(t, reader, func(q jobdb.Queries) error {
		all := namesIn(t, q)
		for _, of := range jobdb.Named {
			for _, text := range []string{"", "s", "DENSE", "1", "set1", "ode4", "%", "_", "über", "?", long[:120], "gang/", "nothing"} {
				want := map[string]bool{}
				for name := range all[of] {
					if name != "" && strings.Contains(strings.ToLower(name), strings.ToLower(text)) {
						want[name] = true
					}
				}
				found, more, err := q.Names(of, text, 1000)
				if sorted := slices.Sorted(slices.Values(found)); err != nil || more || !slices.Equal(sorted, slices.Sorted(maps.Keys(want))) {
					t.Errorf("names of %s with %q: %q, %v, %v, want %q", of, text, found, more, err, slices.Sorted(maps.Keys(want)))
				}
				beyond := false // those that begin with the text come first
				for _, name := range found {
					if beyond = beyond || !strings.HasPrefix(name, text); beyond && strings.HasPrefix(name, text) {
						t.Errorf("names of %s with %q: %q come in this order", of, text, found)
					}
				}
				if few, more, err := q.Names(of, text, 3); err != nil || more != (len(found) > 3) || !slices.Equal(few, found[:min(3, len(found))]) {
					t.Errorf("3 names of %s with %q: %q, %v, %v", of, text, few, more, err)
				}
			}
		}
		if _, _, err := q.Names("colour", "", 1); err == nil || !strings.Contains(err.Error(), "use queue") {
			t.Errorf("names of colours: %v", err)
		}
		return nil
	})
}

// namesIn reads all rows for the names that they have.
func namesIn(t *testing.T, q jobdb.Queries) map[string]map[string]bool {
	t.Helper()
	all := map[string]map[string]bool{}
	for _, of := range jobdb.Named {
		all[of] = map[string]bool{}
	}
	var c jobdb.Criteria
	_, err := q.JobList(&c, jobdb.Page{}, func(j *jobdb.Job) error {
		all["queue"][j.Queue], all["set"][j.JobSet] = true, true
		return nil
	})
	if err == nil {
		_, err = q.RunList(&c, jobdb.Page{}, func(r *jobdb.Run) error {
			all["node"][r.Node], all["category"][r.Error.Category] = true, true
			return nil
		})
	}
	if err == nil {
		_, err = q.DecisionList(&c, jobdb.Page{}, func(d *jobdb.Decision) error {
			all["policy"][d.Policy], all["rule"][d.Rule] = true, true
			return nil
		})
	}
	if err == nil {
		_, err = q.GroupList(&c, jobdb.Page{}, func(g *jobdb.Group) error {
			all["group"][g.Name] = true
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// NamesAsked returns what is asked for names of each sort.
func NamesAsked(t testing.TB) []table.Query {
	t.Helper()
	noted := &asked{}
	for _, of := range jobdb.Named {
		if _, _, err := (table.Queries{Source: noted}).Names(of, "text", 10); err != nil {
			t.Fatal(err)
		}
	}
	return noted.queries
}

package table

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/suggest"
)

// names is where an index has the names of one sort.
type names struct {
	table, column string
	beginning     bool // the index has the beginnings of these texts, and not the empty one
}

var namesOf = map[string]names{
	"queue": {"jobs", "queue", false}, "set": {"jobs", "job_set", false}, "group": {"groups", "grp", true},
	"node": {"runs", NodeOf, true}, "category": {"runs", "error_category", true},
	"policy": {"decisions", "policy", false}, "rule": {"decisions", "rule", false},
}

// indexed is how many characters of a text of any length an index has (see long).
const indexed = 100

var errEnough = errors.New("enough names")

// Names implements [jobdb.Queries]. Both databases look up one name after the other, whatever how many rows have it.
func (q Queries) Names(of, text string, limit int) (found []string, more bool, err error) {
	where, ok := namesOf[of]
	if !ok {
		return nil, false, suggest.Unknown("sort of names", of, jobdb.Named...)
	}
	wanted := strings.ToLower(text)
	add := func(name string) error {
		if len(found) == limit {
			more = true
			return errEnough
		}
		found = append(found, name)
		return nil
	}
	if text != "" {
		err = q.eachName(where, text, func(_ int, name string) error {
			if !strings.HasPrefix(name, text) {
				return errEnough
			}
			return add(name)
		})
	}
	if err == nil && !more {
		err = q.eachName(where, "", func(n int, name string) error {
			more = n == jobdb.MaxNames
			if slices.Contains(found, name) || !strings.Contains(strings.ToLower(name), wanted) {
				return nil
			}
			return add(name)
		})
	}
	return found, more, err
}

// eachName visits the first names from one on, with their numbers, until visit returns errEnough.
func (q Queries) eachName(of names, from string, visit func(n int, name string) error) error {
	column, always := of.column, of.column+" <> ''"
	name := "names.name"
	if of.beginning {
		column = fmt.Sprintf("substr(%s, 1, %d)", of.column, indexed)
		name = fmt.Sprintf("CASE WHEN length(names.name) < %d THEN names.name ELSE (SELECT %s FROM {%s} x WHERE %s = names.name AND %s LIMIT 1) END", indexed, of.column, of.table, column, always)
	}
	next := func(beyond string) string {
		return fmt.Sprintf("SELECT %s FROM {%s} WHERE %s %s AND %s ORDER BY 1 LIMIT 1", column, of.table, column, beyond, always)
	}
	s := Query{
		With: "RECURSIVE {names}(name, n) AS (SELECT (" + next(">= ?") + "), 1 UNION ALL SELECT (" + next("> names.name") +
			fmt.Sprintf("), n + 1 FROM {names} AS names WHERE names.name IS NOT NULL AND n < %d)", jobdb.MaxNames),
		Columns: []string{name, "n"}, From: "names", Where: []string{"names.name IS NOT NULL"}, Args: []any{from},
	}
	var n int
	var text string
	err := q.Source.Find(s, func() []any { return []any{&text, &n} }, func() error { return visit(n, text) })
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

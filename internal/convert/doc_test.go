package convert

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// table is one table of docs/coming-from.md: the rows of a system, without those that another
// table has.
type table struct {
	system  string   // apiVersion and kind
	path    string   // only fields below it, which are named from there
	without []string // but not these, nor what is below them
}

// tables are all, by the name of their place in the page.
func tables() map[string]table {
	every := []string{"apiVersion", "kind", "metadata.", "status"}
	return map[string]table{
		"every manifest": {system: "batch/v1 Job", without: []string{"spec"}},
		"pod template":   {system: "batch/v1 Job", path: "spec.template."},
		"Job":            {system: "batch/v1 Job", path: "spec.", without: []string{"template."}},
		"JobSet":         {system: "jobset.x-k8s.io/v1alpha2 JobSet", path: "spec.", without: []string{"replicatedJobs.template.spec."}},
		"JobFlow":        {system: "flow.volcano.sh/v1alpha1 JobFlow", path: "spec.", without: append(every, "flows.retryPolicy.")},
		"Volcano Job":    {system: "batch.volcano.sh/v1alpha1 Job", path: "spec.", without: []string{"tasks.template.", "tasks.policies.", "policies.events"}},
	}
}

// TestComingFrom: the tables of docs/coming-from.md are those by which manifests are converted.
func TestComingFrom(t *testing.T) {
	t.Parallel()
	const name = "../../docs/coming-from.md"
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	all := fieldTables()
	for place, tab := range tables() {
		begin, end := fmt.Sprintf("<!-- table: %s -->\n", place), "<!-- end -->\n"
		before, rest, ok := strings.Cut(text, begin)
		_, after, closed := strings.Cut(rest, end)
		if !ok || !closed {
			t.Fatalf("%s has no place for the table of %s", name, place)
		}
		rows := all[tab.system]
		if len(rows) == 0 {
			t.Fatalf("no system %s", tab.system)
		}
		text = before + begin + tab.markdown(rows) + end + after
	}
	if text == string(page) {
		return
	}
	if flag.Lookup("rewrite").Value.String() != "true" { // of package datadriven
		t.Fatalf("the tables of %s differ: go test ./internal/convert -run TestComingFrom -rewrite", name)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// markdown renders the rows of fields that become something else, or are lost: not those that
// only hold others, that are kept as they are, or that have no effect. It leaves out special cases
// of fields that have a row, and values that are refused, because convert reports them where they
// occur; and fields whose value moves unchanged.
// Fields of which the same is said share a row.
func (tab table) markdown(rows []Field) string {
	general := map[string]bool{}
	for _, f := range rows {
		general[f.Path] = general[f.Path] || f.Case == "" && !asIs(f) && slices.Contains([]Treatment{Kept, Differs, Dropped}, f.Treatment)
	}
	var b strings.Builder
	var order []string
	fields := map[string][]string{}
	b.WriteString("| field | becomes | what is here, or why |\n|---|---|---|\n")
	for _, f := range rows {
		path, ok := strings.CutPrefix(f.Path, tab.path)
		left := func(prefix string) bool {
			return strings.HasPrefix(path+".", prefix) && (strings.HasSuffix(prefix, ".") || path == prefix || strings.HasPrefix(path, prefix+"."))
		}
		if !ok || path == "" || slices.ContainsFunc(tab.without, left) || f.Treatment == Ignored || asIs(f) {
			continue
		}
		if f.Treatment == Kept && f.Case == "" && f.Why == "" && strings.Count(f.Here, " ") < 2 {
			continue // the policies that convert writes show where it is
		}
		if f.Treatment == Forbidden || f.Case != "" && general[f.Path] && (f.Treatment == Differs || f.Treatment == Dropped) {
			continue
		}
		field := "`" + path + "`"
		if f.Value != "" {
			field = "`" + path + ": " + f.Value + "`"
		}
		if f.Case != "" {
			field += ": " + f.Case
		}
		if f.Proposed {
			field += " (proposed)"
		}
		treatment := f.Treatment.String()
		if f.Treatment == Inside || f.Treatment == Depends {
			treatment = "kept"
		}
		why := strings.Trim(f.Here+"; "+f.Why, "; ")
		cells := []string{field, treatment, why}
		for i := range cells {
			cells[i] = strings.ReplaceAll(cells[i], "|", `\|`)
		}
		documented := strings.Join(cells[1:], " | ")
		if fields[documented] == nil {
			order = append(order, documented)
		}
		fields[documented] = append(fields[documented], cells[0])
	}
	for _, documented := range order {
		fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(fields[documented], ", "), documented)
	}
	return b.String()
}

// asIs reports whether a field is kept as it is.
func asIs(f Field) bool {
	return f.Why == "" && slices.Contains([]string{"", "podSpec", "jobs.labels", "jobs.annotations"}, f.Here)
}

// String returns the treatment as a table shows it.
func (f Treatment) String() string {
	switch f {
	case Kept:
		return "kept"
	case Differs:
		return "changed"
	case Dropped:
		return "lost"
	case Ignored:
		return "ignored"
	case Inside:
		return "see below"
	case Depends:
		return "depends"
	case Forbidden:
		return "error"
	}
	return fmt.Sprintf("Treatment(%d)", uint8(f))
}

// fieldTables returns the tables of all systems, by apiVersion and kind.
func fieldTables() map[string][]Field {
	tables := map[string][]Field{}
	for _, s := range systems() {
		tables[s.apiVersion+" "+s.kind] = s.table
	}
	return tables
}

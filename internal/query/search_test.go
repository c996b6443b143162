package query_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/sqlite"
	"github.com/refloat/refloat/internal/query"
	"github.com/refloat/refloat/internal/test/jobdbtest"
)

// searched is a job database with 2,000 decisions.
func searched(t *testing.T) *query.Source {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.db")
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	jobdbtest.Fill(t, db, 2_000)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	reader, err := sqlite.OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reader.Close() })
	return &query.Source{Jobs: reader.View}
}

func TestSearch(t *testing.T) {
	t.Parallel()
	s := searched(t)
	const job = "01m7xn60000000000000"
	for _, c := range []struct {
		asked query.SearchQuestion
		want  []string // kinds and names, of each kind the first
		more  string
	}{
		{query.SearchQuestion{Text: job}, []string{"job " + job}, ""},
		{query.SearchQuestion{Text: job[:18]}, []string{"job " + job}, ""},
		{query.SearchQuestion{Text: "armada-" + job + "-0"}, []string{"job " + job}, ""},
		{query.SearchQuestion{Text: "armada-" + job + "-0-12"}, []string{"job " + job}, ""},
		{query.SearchQuestion{Text: "armada-" + job[:19]}, []string{"job " + job}, ""},
		{query.SearchQuestion{Text: "01m"}, []string{"job " + job}, "job"},
		{query.SearchQuestion{Text: "SPARSE"}, []string{"queue sparse", "set sparse", "group sparse", "node sparse", "category sparse", "policy sparse", "rule sparse"}, ""},
		{query.SearchQuestion{Text: "ode49", Limit: 100}, []string{"node node49"}, ""},
		{query.SearchQuestion{Text: "ense", Kinds: []string{"rule", "queue"}}, []string{"rule dense", "queue dense"}, ""},
		{query.SearchQuestion{Text: "set", Limit: 3}, []string{"set set0"}, "set"},
		{query.SearchQuestion{Text: "nothing like this"}, nil, ""},
		{query.SearchQuestion{Kinds: []string{"queue"}, Limit: 2}, []string{"queue dense"}, "queue"},
	} {
		found, err := s.Search(t.Context(), c.asked)
		if err != nil {
			t.Fatalf("%+v: %v", c.asked, err)
		}
		var first, kinds []string
		for _, m := range found.Matches {
			if !slices.Contains(kinds, m.Kind) {
				kinds, first = append(kinds, m.Kind), append(first, m.Kind+" "+m.Name)
			}
			if (m.Kind == "job" || m.Kind == "group") != (m.Queue != "" && m.State != "") {
				t.Errorf("%+v finds %+v", c.asked, m)
			}
		}
		if !slices.Equal(first, c.want) || strings.Join(found.More, " ") != c.more {
			t.Errorf("%+v finds %q and more of %q, want %q and %q", c.asked, first, found.More, c.want, c.more)
		}
	}
	for param, asked := range map[string]query.SearchQuestion{"kind": {Kinds: []string{"rule", "colour"}}, "limit": {Limit: -1}} {
		if _, err := s.Search(t.Context(), asked); !isInvalid(err, param) {
			t.Errorf("%+v: %v", asked, err)
		}
	}
}

func isInvalid(err error, param string) bool {
	bad, ok := errors.AsType[*query.Invalid](err)
	return ok && bad.Param == param
}

// TestMissing: of the names that a list selects by, the first one that nothing has is said, with one that was probably meant.
func TestMissing(t *testing.T) {
	t.Parallel()
	s := searched(t)
	for want, c := range map[string]jobdb.Criteria{
		"": {Queue: "dense", JobSet: "set1", Group: "sparse", Node: "node7", Category: "category1", Policy: "policy1", Rule: "rule1"},
		`queue: no queue is called "densee": did you mean dense?`:                             {Queue: "densee", Node: "none"},
		`node: no node is called "zzz": use one such as dense, node0, node1, node10, node100`: {Queue: "dense", Node: "zzz"},
		`rule: no rule is called "rule99": did you mean `:                                     {Rule: "policy1/rule99"},
		`policy: no policy is called "policy": did you mean `:                                 {Rule: "policy/rule1"},
		`set: no job set is called "SET1": did you mean set1?`:                                {JobSet: "SET1"},
	} {
		bad := query.Missing(t.Context(), s, &c)
		if got := fmt.Sprint(bad); bad != nil && (want == "" || !strings.HasPrefix(got, want)) || bad == nil && want != "" {
			t.Errorf("%+v: %v, want %q", c, bad, want)
		}
	}
	broken := &query.Source{Jobs: func(context.Context, func(jobdb.Queries) error) error { return jobdb.ErrUnavailable }}
	if bad := query.Missing(t.Context(), broken, &jobdb.Criteria{Queue: "q"}); bad != nil {
		t.Errorf("without a job database: %v", bad)
	}
}

package query

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/refloat/refloat/internal/group"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/suggest"
)

// SearchQuestion asks what has a name.
type SearchQuestion struct {
	// Text is the beginning of a job's id or pod, any part of another name, whatever the case, or an exit code that rules in
	// force list; "": any.
	Text  string
	Kinds []string // of Kinds; none: all
	Limit int      // of each kind; 0: 10
}

// Matches are what was found, kind by kind in the order of Kinds.
type Matches struct {
	Matches []Match  `json:"matches"`
	More    []string `json:"more"` // kinds of which there may be others
}

// Match is something with a name.
type Match struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Queue     string `json:"queue,omitempty"` // of a job or a group
	JobSet    string `json:"jobSet,omitempty"`
	State     string `json:"state,omitempty"`
	Partition int    `json:"partition,omitempty"` // of a job
}

// KindJob is the kind of jobs. The other kinds are jobdb.Named; a gang without a group of its own is a group.
const KindJob = "job"

// Kinds are the kinds of things that are searched for.
func Kinds() []string { return append([]string{KindJob}, jobdb.Named...) }

// pod finds the id of a job in the name of a pod (policy.PodName), or in its beginning.
var pod = regexp.MustCompile(`^armada-(.*?)(-[0-9]*){0,2}$`)

// JobOfPod returns the beginning of the id of a job in a text that is the beginning of a pod's name, else the text.
func JobOfPod(text string) string {
	if m := pod.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return text
}

// Search finds what has a name. Errors: *Invalid.
func (s *Source) Search(ctx context.Context, asked SearchQuestion) (*Matches, error) {
	kinds := asked.Kinds
	if len(kinds) == 0 {
		kinds = Kinds()
	}
	for _, kind := range kinds {
		if !slices.Contains(Kinds(), kind) {
			return nil, &Invalid{"kind", suggest.Unknown("kind", kind, Kinds()...)}
		}
	}
	if asked.Limit < 0 {
		return nil, invalid("limit", "%d: want 1 or more, or 0 for 10", asked.Limit)
	}
	asked.Limit = cmp.Or(asked.Limit, 10)
	some, err := s.named(ctx, kinds)
	if err != nil {
		return nil, err
	}
	out := &Matches{Matches: []Match{}, More: []string{}}
	err = s.Jobs(ctx, func(q jobdb.Queries) error {
		for _, kind := range kinds {
			found, more, err := matching(q, kind, &asked, some[kind])
			if err != nil {
				return err
			}
			if more {
				out.More = append(out.More, kind)
			}
			out.Matches = append(out.Matches, found...)
		}
		return nil
	})
	return out, err
}

// Missing says which name that a list selects by nothing has; nil: something has each, or that is unknown. It is help, so
// errors are left out.
func Missing(ctx context.Context, from Answers, c *jobdb.Criteria) *Invalid {
	policy, rule, both := strings.Cut(c.Rule, "/")
	if !both {
		policy, rule = c.Policy, c.Rule
	}
	for _, x := range []struct{ kind, word, name string }{
		{"queue", "queue", c.Queue},
		{"set", "job set", c.JobSet},
		{"group", "group", c.Group},
		{"node", "node", c.Node},
		{"category", "category", c.Category},
		{"policy", "policy", policy},
		{"rule", "rule", rule},
	} {
		if x.name == "" {
			continue
		}
		var names []string                          // those with the text in them first
		having := 0                                 // how many those are
		for _, text := range []string{x.name, ""} { // if there are many, those with the name are not among the first ones of all
			found, err := from.Search(ctx, SearchQuestion{Text: text, Kinds: []string{x.kind}, Limit: 1000})
			if err != nil {
				return nil
			}
			if text != "" {
				having = len(found.Matches)
			}
			for _, m := range found.Matches {
				if !slices.Contains(names, m.Name) {
					names = append(names, m.Name)
				}
			}
		}
		if slices.Contains(names, x.name) {
			continue
		}
		use := "there is none"
		switch {
		case having == 1:
			use = "did you mean " + names[0] + "?"
		case len(names) > 0:
			use = "use one such as " + strings.Join(names[:min(len(names), 5)], ", ")
		}
		return &Invalid{x.kind, fmt.Errorf("no %s is called %q: %s", x.word, x.name, suggest.Fix(x.name, names, use))}
	}
	return nil
}

// Names finds names of some kinds but KindJob, up to so many of each, as Search does.
func (s *Source) Names(ctx context.Context, kinds []string, text string, limit int) (map[string][]string, error) {
	found := map[string][]string{}
	some, err := s.named(ctx, kinds)
	if err != nil {
		return nil, err
	}
	return found, s.Jobs(ctx, func(q jobdb.Queries) (err error) {
		for _, kind := range kinds {
			if err == nil {
				found[kind], _, err = namesOf(q, kind, text, limit, some[kind])
			}
		}
		return err
	})
}

// inForce is a name in the policies in force, which need not be in the job database, and the exit codes that a rule lists.
type inForce struct {
	name  string
	codes []int32
}

// namesOf finds names of one kind. some need not be in the job database.
func namesOf(q jobdb.Queries, kind, text string, limit int, some []inForce) (names []string, more bool, err error) {
	names, more, err = q.Names(kind, text, limit)
	if err == nil && kind == "group" && text != "" && !more { // of gangs, people know the ids
		var gangs []string
		gangs, more, err = q.Names(kind, group.OfGang(text), limit)
		for _, name := range gangs {
			some = append(some, inForce{name: name})
		}
	}
	code, failed := strconv.ParseInt(text, 10, 32)
	for _, s := range some {
		listed := failed == nil && slices.Contains(s.codes, int32(code))
		if (listed || strings.Contains(strings.ToLower(s.name), strings.ToLower(text))) && !slices.Contains(names, s.name) {
			names = append(names, s.name)
		}
	}
	if len(names) > limit {
		names, more = names[:limit], true
	}
	return names, more, err
}

// matching finds what is of one kind. some are names that need not be in the job database.
func matching(q jobdb.Queries, kind string, asked *SearchQuestion, some []inForce) (found []Match, more bool, err error) {
	if kind == KindJob {
		return jobsNamed(q, asked)
	}
	names, more, err := namesOf(q, kind, asked.Text, asked.Limit, some)
	if err != nil {
		return nil, false, err
	}
	for _, name := range names {
		if kind != "group" {
			found = append(found, Match{Kind: kind, Name: name})
			continue
		}
		if _, err := q.GroupList(&jobdb.Criteria{Group: name}, jobdb.Page{Limit: asked.Limit}, func(g *jobdb.Group) error {
			found = append(found, Match{Kind: kind, Name: name, Queue: g.Queue, JobSet: g.JobSet, State: g.State.String()})
			return nil
		}); err != nil {
			return nil, false, err
		}
	}
	if len(found) > asked.Limit {
		found, more = found[:asked.Limit], true
	}
	return found, more, nil
}

// jobsNamed finds jobs by the beginning of their ids, or of the names of their pods.
func jobsNamed(q jobdb.Queries, asked *SearchQuestion) (found []Match, more bool, err error) {
	for _, c := range []jobdb.Criteria{{JobID: asked.Text}, {JobPrefix: JobOfPod(asked.Text)}} {
		if c.Empty() || len(found) > 0 {
			continue
		}
		next, err := q.JobList(&c, jobdb.Page{Limit: asked.Limit}, func(j *jobdb.Job) error {
			found = append(found, Match{KindJob, j.JobID, j.Queue, j.JobSet, j.State.String(), j.Partition})
			return nil
		})
		if err != nil {
			return nil, false, err
		}
		more = next != nil
	}
	return found, more, nil
}

// named returns the names in the policies in force, of those kinds that they have; none for a caller who may see only some queues.
func (s *Source) named(ctx context.Context, kinds []string) (map[string][]inForce, error) {
	all := map[string][]inForce{}
	if s.Policies == nil || s.limited != nil && s.limited(ctx) || !slices.Contains(kinds, "policy") && !slices.Contains(kinds, "rule") && !slices.Contains(kinds, "queue") {
		return all, nil
	}
	return all, s.Policies(ctx, func(store *policylog.Store) error {
		snap, err := store.Newest(ctx)
		if err != nil {
			return err
		}
		for _, id := range snap.Base.Resources() {
			switch id.Kind {
			case policyfile.KindQueue:
				all["queue"] = append(all["queue"], inForce{name: id.Name})
			case policyfile.KindPolicy:
				all["policy"] = append(all["policy"], inForce{name: id.Name})
				for _, r := range snap.Base.Outline(id.Name).Rules {
					rule := inForce{name: r.Shown}
					if e, ok := policy.Find[policy.ExitCodes](&r.Matchers); ok && !e.NotIn {
						rule.codes = e.Codes
					}
					all["rule"] = append(all["rule"], rule)
				}
			}
		}
		return nil
	})
}

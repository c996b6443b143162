package policy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/authoring/suite"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/test/oracle"
)

// The oracle rows: other systems' own tests (testdata/oracles/README.md), put
// into our files and failures, and decided by the evaluator's Step. Where a row
// differs from semantics.md, semantics.md wins: a predicate over the row leaves it out
// or adapts it, with the reason.

type obj = map[string]any

const (
	v1     = "armadaproject.io/v1"
	flatV1 = "armadaproject.io/v1beta1"
	most   = 1_000_000 // the largest limit of our files
)

// The codes of problems that rows meet (docs/policies.md).
const (
	required     = "RP013"
	unsupported  = "RP014"
	badName      = "RP020"
	unknownValue = "RP030"
	duplicate    = "RP031"
	outOfRange   = "RP032"
	neverMatches = "RP033"
	badPattern   = "RP036"
	empty        = "RP038"
	noMatcher    = "RP040"
	tooMuch      = "RP043"
)

// filesOf are the documents as one JSON file each.
func filesOf(docs ...obj) ([]policyfile.File, error) {
	files := make([]policyfile.File, len(docs))
	for i, doc := range docs {
		data, err := json.Marshal(doc)
		if err != nil {
			return nil, err
		}
		files[i] = policyfile.File{Name: strconv.Itoa(i) + ".json", Data: data}
	}
	return files, nil
}

func parseDocs(docs ...obj) (*policyfile.Set, error) {
	files, err := filesOf(docs...)
	if err != nil {
		return nil, err
	}
	return policyfile.Parse(files)
}

// problems are those that Parse found.
func problems(err error) policyfile.Problems {
	var all policyfile.Problems
	errors.As(err, &all)
	return all
}

func hasProblem(err error, codes ...string) bool {
	return slices.ContainsFunc(problems(err), func(p policyfile.Problem) bool { return slices.Contains(codes, p.Code) })
}

// policyDoc is the policy "p" with a spec.
func policyDoc(spec obj) obj {
	return obj{"apiVersion": v1, "kind": "RetryPolicy", "metadata": obj{"name": "p"}, "spec": spec}
}

// flatDoc is a policy in Armada's flat form.
func flatDoc(p obj) obj {
	doc := obj{"apiVersion": flatV1, "kind": "RetryPolicy"}
	maps.Copy(doc, p)
	return doc
}

func settingsDoc(spec obj) obj { return obj{"kind": "RetrySettings", "spec": spec} }

// The warm-up: what a job was granted before the failure of the row was granted
// by Step as well, under the same policies with every action Retry and no limit.
// A rule's count goes by its matchers or its name, so it is the same rule's.
const (
	ignoredBefore = "ignored-before" // a category that the warm-up ignores
	categoryField = "onFailureCategory"
)

// generous is a policy document, in either form, that grants every retry.
func generous(doc obj) obj {
	out := maps.Clone(doc)
	spec := out
	if s, ok := doc["spec"].(obj); ok {
		spec = maps.Clone(s)
		out["spec"] = spec
	}
	spec["defaultAction"], spec["retryLimit"] = "Retry", most
	ignore := obj{"action": "Ignore", categoryField: []string{ignoredBefore}}
	if doc["apiVersion"] == flatV1 {
		ignore = nil // the flat form has no such action
	}
	rules := []any{}
	if ignore != nil {
		rules = append(rules, ignore)
	}
	old, _ := spec["rules"].([]any)
	for _, r := range old {
		rule := maps.Clone(r.(obj)) //nolint:forcetypeassert // made by the suites
		rule["action"] = "Retry"
		delete(rule, "retryLimit")
		rules = append(rules, rule)
	}
	spec["rules"] = rules
	return out
}

// job is one job at work: its runs fail one after the other, a second apart.
type job struct {
	c     *oracle.Check
	trial *suite.Trial
	at    int64
	sick  bool // an error was reported: nothing more is tried
}

// newJob submits a job under these documents.
func newJob(c *oracle.Check, j suite.Job, docs ...obj) *job {
	n := &job{c: c, at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()}
	set, err := parseDocs(docs...)
	if err == nil {
		n.trial, err = suite.NewTrial(set, j, n.at)
	}
	n.report(err)
	return n
}

func (j *job) report(err error) {
	if err != nil {
		j.sick = true
		j.c.Errorf("%v", err)
	}
}

// use puts other documents into force.
func (j *job) use(docs ...obj) {
	if j.sick {
		return
	}
	set, err := parseDocs(docs...)
	if err != nil {
		j.report(err)
		return
	}
	j.trial.Use(set)
}

// decided is what Step made of one failure.
type decided struct {
	chain.Decision // zero where the job had ended before
	suite.Outcome
	ended bool // the job had ended before
}

// fail lets the next run fail.
func (j *job) fail(f suite.Failure) decided {
	j.at += int64(time.Second)
	return j.failAt(f, j.at)
}

func (j *job) failAt(f suite.Failure, at int64) decided {
	if j.sick {
		return decided{}
	}
	out, err := j.trial.Fail(&f, at)
	j.report(err)
	d := decided{Outcome: out, ended: out.NotDecided != nil}
	if out.Decision != nil {
		d.Decision = *out.Decision
	}
	return d
}

// before lets n runs fail in the same way, each of which must be retried.
func (j *job) before(n int64, f suite.Failure) {
	for range n {
		if d := j.fail(f); !d.Requeue && !j.sick {
			j.report(fmt.Errorf("a failure before the row's was not retried: %s", d.Code))
		}
		if j.sick {
			return
		}
	}
}

// place is the number of the rule without a name that decided, -1 where none did.
func (d *decided) place() int {
	if n, ok := strings.CutPrefix(d.Rule, "#"); ok {
		if i, err := strconv.Atoi(n); err == nil {
			return i
		}
	}
	return -1
}

// number is a whole number of a row that may be missing.
type number = *int64

func or(n number, missing int64) int64 {
	if n == nil {
		return missing
	}
	return *n
}

// any-typed fields are known and mean nothing to us.
type unread = any

package policyfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/policy"
)

func parseOne(t *testing.T, text string) *Set {
	t.Helper()
	s, err := Parse([]File{{Name: "test.yaml", Data: []byte(text)}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const threeResources = `
kind: RetrySettings
spec: {globalMaxRetries: 9, defaultPolicyName: infra, pausedUntil: 2026-12-01T06:00:00Z, defaultBackoff: {maxDelay: 90s}}
---
apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: infra}
spec:
  backoff: {type: Constant, initialDelay: 1h30m}
  rules:
  - {name: "on", action: Retry, onExitCodes: {operator: In, values: [137, 3]}, onTerminationMessage: {pattern: "it's: #1"}}
  - {action: Ignore, onFailureCategory: ["1e3", "null"], retryLimit: 0, backoff: {multiplier: 1.5, jitter: 0.125}}
---
apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: empty}
spec: {}
---
kind: Queue
name: "1"
retryPolicies: [infra, missing]
mode: Shadow
`

// What a set writes is read back to an equal set, in YAML and in JSON.
func TestWriteRoundTrip(t *testing.T) {
	t.Parallel()
	s := parseOne(t, threeResources)
	sameAgain(t, s)
	rapid.Check(t, func(r *rapid.T) {
		s, err := Parse(drawSet(r))
		if err != nil {
			r.Fatal(err)
		}
		sameAgain(r, s)
	})
}

func sameAgain(t rapid.TB, s *Set) {
	t.Helper()
	text, err := s.YAML(s.Resources()...)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse([]File{{Name: "written.yaml", Data: text}})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if string(again.Canonical()) != string(s.Canonical()) {
		t.Fatalf("read back as\n%s\nnot\n%s\nfrom\n%s", again.Canonical(), s.Canonical(), text)
	}
	var files []File
	for _, id := range s.Resources() {
		text, err := s.JSON(id)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, File{Name: id.String(), Data: text})
	}
	if again, err = Parse(files); err != nil || again.Digest() != s.Digest() {
		t.Fatalf("from JSON: %v\n%s", err, files)
	}
}

func TestWriteReadsWell(t *testing.T) {
	t.Parallel()
	s := parseOne(t, threeResources)
	text, err := s.YAML(s.Resources()...)
	if err != nil {
		t.Fatal(err)
	}
	const want = `apiVersion: armadaproject.io/v1
kind: RetrySettings
spec:
  globalMaxRetries: 9
  defaultPolicyName: infra
  defaultBackoff:
    maxDelay: 1m30s
  pausedUntil: 2026-12-01T06:00:00Z
---
apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata:
  name: empty
spec: {}
---
apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata:
  name: infra
spec:
  backoff:
    initialDelay: 1h30m
    multiplier: 1
  rules:
  - name: on
    action: Retry
    onExitCodes:
      operator: In
      values: [3, 137]
    onTerminationMessage:
      pattern: 'it''s: #1'
  - action: Ignore
    onFailureCategory: ["1e3", "null"]
    retryLimit: 0
    backoff:
      multiplier: 1.5
      jitter: 0.125
---
apiVersion: armadaproject.io/v1
kind: Queue
name: "1"
retryPolicies: [infra, missing]
mode: Shadow
`
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

func TestEdit(t *testing.T) {
	t.Parallel()
	s := parseOne(t, threeResources)
	infra := ID{Kind: KindPolicy, Name: "infra"}
	if got := s.Users("infra"); len(got) != 2 || got[0].Kind != KindSettings || got[1].Name != "1" {
		t.Errorf("Users = %v", got)
	}
	if got := s.Missing(ID{Kind: KindQueue, Name: "1"}); len(got) != 1 || got[0] != "missing" {
		t.Errorf("Missing = %v", got)
	}
	changed, ids, err := s.With(File{Name: "x", Data: []byte("{kind: Queue, name: b}\n---\n" + strings.ReplaceAll(string(mustYAML(t, s, infra)), "1h30m", "5s"))})
	if err != nil || len(ids) != 2 || ids[1] != infra {
		t.Fatalf("With = %v, %v", ids, err)
	}
	before, _ := s.Body(infra)
	after, _ := changed.Body(infra)
	if before == after || !strings.Contains(after, `"5000ms"`) || len(changed.Resources()) != 5 {
		t.Errorf("after With: %s, %v", after, changed.Resources())
	}
	if back := changed.Replacing(infra, s).Without(ID{Kind: KindQueue, Name: "b"}); back.Digest() != s.Digest() {
		t.Errorf("taken back: %s", back.Canonical())
	}
	if d := s.Detached("infra"); len(d.Users("infra")) != 0 || len(s.Users("infra")) != 2 {
		t.Errorf("Detached leaves %v, and %v where it came from", d.Users("infra"), s.Users("infra"))
	}
	if _, ok := s.Without(infra).Body(infra); ok {
		t.Error("Without leaves it")
	}
	if _, err := s.YAML(ID{Kind: KindPolicy, Name: "x"}); err == nil {
		t.Error("what is not there can be written")
	}
}

// Whatever is made of sets can be written, and read back from the log.
func TestEditsAreCanonical(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		draw := func() *Set {
			s, err := Parse(drawSet(r))
			if err != nil {
				r.Fatal(err)
			}
			return s
		}
		s, other := draw(), draw()
		for range rapid.IntRange(1, 8).Draw(r, "edits") {
			ids := append(s.Resources(), other.Resources()...)
			ids = append(ids, ID{KindPolicy, "nobody"})
			id := rapid.SampledFrom(ids).Draw(r, "id")
			switch rapid.IntRange(0, 3).Draw(r, "edit") {
			case 0:
				s = s.Without(id)
			case 1:
				s = s.Replacing(id, other)
			case 2:
				s = s.Detached(id.Name)
			default:
				var err error
				if s, err = s.WithOverrides(drawOverride(r)); err != nil {
					r.Fatal(err)
				}
			}
			again, err := Empty().ParseCanonical(s.Canonical())
			if err != nil || again.Digest() != s.Digest() {
				r.Fatalf("%v: %s", err, s.Canonical())
			}
		}
	})
}

func mustYAML(t *testing.T, s *Set, ids ...ID) []byte {
	t.Helper()
	text, err := s.YAML(ids...)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func drawOverride(r *rapid.T) Override {
	until := int64(rapid.IntRange(0, 1).Draw(r, "until")) * 1e18
	if rapid.Bool().Draw(r, "node") {
		return Override{Node: rapid.SampledFrom([]string{"n1", "n3"}).Draw(r, "name"), AvoidedUntil: until, TrustedUntil: 1e18 - until}
	}
	if queue := rapid.SampledFrom([]string{"", "q"}).Draw(r, "of"); rapid.Bool().Draw(r, "breaker") {
		return Override{Queue: queue, Category: "infra", Subcategory: rapid.SampledFrom([]string{"", "gpu"}).Draw(r, "subcategory"), HeldUntil: until}
	}
	return Override{Queue: rapid.SampledFrom([]string{"", "q", "new"}).Draw(r, "queue"), Kill: rapid.Bool().Draw(r, "kill"), PausedUntil: until}
}

func TestWithOverrides(t *testing.T) {
	t.Parallel()
	s := parseOne(t, threeResources)
	const later, earlier = 1796191200000000000, 1700000000000000000
	b, err := s.WithOverrides(
		Override{Kill: true, PausedUntil: earlier}, // the set says later
		Override{Queue: "1", PausedUntil: later},
		Override{Queue: "new", Kill: true},
	)
	if err != nil {
		t.Fatal(err)
	}
	text := string(mustYAML(t, b, b.Resources()...))
	for _, want := range []string{"globalMaxRetries: 0", "pausedUntil: 2026-12-01T06:00:00Z", "mode: Shadow\npausedUntil: 2026-12-02T", "name: new\nkilled: true"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if same, err := s.WithOverrides(); err != nil || same.Digest() != s.Digest() {
		t.Errorf("no overrides: %v", err)
	}
	if _, err := s.WithOverrides(Override{Queue: "a\x00b"}); err == nil {
		t.Error("a queue's name may hold a control character")
	}
}

// TestAvoidNodes: an override adds a node to those of the settings, of which the later time counts.
func TestAvoidNodes(t *testing.T) {
	t.Parallel()
	const earlier, later = 1700000000000000000, 1796104800000000000
	s := parseOne(t, "{kind: RetrySettings, spec: {avoidNodes: [{name: n2, until: 2026-12-01T06:00:00Z}, {name: n1, until: 2023-11-14T22:13:20Z}]}}")
	if own := s.AvoidNodes(); !slices.Equal(own, []policy.AvoidedNode{{Name: "n1", Until: earlier}, {Name: "n2", Until: later}}) {
		t.Errorf("of the settings: %v", own)
	}
	with, err := s.WithOverrides(
		Override{Node: "n1", AvoidedUntil: later}, Override{Node: "n2", AvoidedUntil: earlier}, Override{Node: "n3", AvoidedUntil: earlier}, Override{Node: "n4", TrustedUntil: later},
	)
	if err != nil {
		t.Fatal(err)
	}
	if all := with.AvoidNodes(); !slices.Equal(all, []policy.AvoidedNode{{Name: "n1", Until: later}, {Name: "n2", Until: later}, {Name: "n3", Until: earlier}}) {
		t.Errorf("with overrides: %v", all)
	}
	if again, err := Empty().ParseCanonical(with.Canonical()); err != nil || again.Digest() != with.Digest() {
		t.Errorf("%v of %s", err, with.Canonical())
	}
	if s.AvoidNodes()[0].Until != earlier {
		t.Error("the set without overrides has changed")
	}
	if trusted, err := s.WithOverrides(Override{Node: "n2", TrustedUntil: later}); err != nil || trusted.Digest() != s.Digest() {
		t.Errorf("trust changes what decides: %v", err)
	}
	if _, err := s.WithOverrides(Override{Node: "a\x00b", AvoidedUntil: later}); err == nil {
		t.Error("a node's name may hold a control character")
	}
	var many []Override
	for i := range policy.MaxAvoidNodes - 1 {
		many = append(many, Override{Node: fmt.Sprint(i), AvoidedUntil: later})
	}
	if _, err := s.WithOverrides(many...); err == nil {
		t.Errorf("%d nodes", policy.MaxAvoidNodes+1)
	}
	if _, err := s.WithOverrides(many[1:]...); err != nil {
		t.Errorf("%d nodes: %v", policy.MaxAvoidNodes, err)
	}
	for text, code := range map[string]string{
		"[{name: a, until: 2026-12-01T06:00:00Z}, {name: a, until: 2027-12-01T06:00:00Z}]": codeDuplicateName,
		"[{name: a}]": codeRequired, "[{name: a b, until: 2026-12-01T06:00:00Z}]": codeBadName, "[{name: a, until: soon}]": codeBadTime,
		"[" + strings.Repeat("{name: a, until: 2026-12-01T06:00:00Z},", policy.MaxAvoidNodes+1) + "]": codeTooMuch,
	} {
		_, err := Parse([]File{{"f", []byte("{kind: RetrySettings, spec: {avoidNodes: " + text + "}}")}})
		if problems := Problems(nil); !errors.As(err, &problems) || !slices.ContainsFunc(problems, func(p Problem) bool { return p.Code == code }) {
			t.Errorf("%.80s: %.200v, want %s", text, err, code)
		}
	}
}

// TestOpenBreakers: an override opens a breaker beside those of the settings, of which the later time counts.
func TestOpenBreakers(t *testing.T) {
	t.Parallel()
	const earlier, later = 1700000000000000000, 1796104800000000000
	s := parseOne(t, "{kind: RetrySettings, spec: {openBreakers: [{category: infra, queue: q, until: 2026-12-01T06:00:00Z}, {category: infra, subcategory: gpu, until: 2023-11-14T22:13:20Z}]}}")
	held := func(s *Set, queue, category, subcategory string, at int64) int64 {
		until, ok := s.HeldUntil(&policy.Failure{Queue: queue, Category: category, Subcategory: subcategory, Time: at})
		if ok != (until != 0) {
			t.Errorf("held %t until %d", ok, until)
		}
		return until
	}
	for _, c := range []struct {
		queue, category, subcategory string
		at, want                     int64
	}{
		{"q", "infra", "net", 0, later},
		{"q", "infra", "gpu", 0, later},
		{"q", "infra", "net", later, 0},
		{"q", "app", "", 0, 0},
		{"p", "infra", "net", 0, 0},
		{"p", "infra", "gpu", 0, earlier},
		{"p", "infra", "gpu", earlier, 0},
		{"q", "", "", 0, 0},
	} {
		if got := held(s, c.queue, c.category, c.subcategory, c.at); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	with, err := s.WithOverrides(
		Override{Category: "infra", Queue: "q", HeldUntil: earlier}, Override{Category: "infra", Subcategory: "gpu", HeldUntil: later}, Override{Category: "app", HeldUntil: later},
	)
	if err != nil {
		t.Fatal(err)
	}
	if held(with, "p", "infra", "gpu", 0) != later || held(with, "q", "infra", "", 0) != later || held(with, "p", "app", "", 0) != later {
		t.Errorf("with overrides: %s", with.Canonical())
	}
	if again, err := Empty().ParseCanonical(with.Canonical()); err != nil || again.Digest() != with.Digest() {
		t.Errorf("%v of %s", err, with.Canonical())
	}
	if held(s, "p", "infra", "gpu", 0) != earlier {
		t.Error("the set without overrides has changed")
	}
	for _, bad := range []Override{{Category: "a\x00b", HeldUntil: later}, {Category: "a", Subcategory: "\x01", HeldUntil: later}, {Category: "a", Queue: "a b", HeldUntil: later}} {
		if _, err := s.WithOverrides(bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	var many []Override
	for i := range policy.MaxOpenBreakers - 1 {
		many = append(many, Override{Category: fmt.Sprint(i), HeldUntil: later})
	}
	if _, err := s.WithOverrides(many...); err == nil {
		t.Errorf("%d breakers", policy.MaxOpenBreakers+1)
	}
	if _, err := s.WithOverrides(many[1:]...); err != nil {
		t.Errorf("%d breakers: %v", policy.MaxOpenBreakers, err)
	}
	for text, code := range map[string]string{
		"[{category: a, until: 2026-12-01T06:00:00Z}, {category: a, until: 2027-12-01T06:00:00Z}]": codeDuplicateName,
		"[{category: a}]": codeRequired, "[{until: 2026-12-01T06:00:00Z}]": codeRequired, "[{category: a, queue: a b, until: 2026-12-01T06:00:00Z}]": codeBadName,
		"[" + strings.Repeat("{category: a, until: 2026-12-01T06:00:00Z},", policy.MaxOpenBreakers+1) + "]": codeTooMuch,
	} {
		_, err := Parse([]File{{"f", []byte("{kind: RetrySettings, spec: {openBreakers: " + text + "}}")}})
		if problems := Problems(nil); !errors.As(err, &problems) || !slices.ContainsFunc(problems, func(p Problem) bool { return p.Code == code }) {
			t.Errorf("%.80s: %.200v, want %s", text, err, code)
		}
	}
}

// TestBreakers: what settings say of breakers that open by themselves, and its limits.
func TestBreakers(t *testing.T) {
	t.Parallel()
	s := parseOne(t, "{kind: RetrySettings, spec: {breakers: {mode: Shadow, openAfter: 2, queues: 1, window: 10s, hold: 24h, probe: 1h, canaries: 100, ramp: 0s}}}")
	want := policy.Breakers{Shadow: true, OpenAfter: 2, Queues: 1, Window: 10 * time.Second, Hold: 24 * time.Hour, Probe: time.Hour, Canaries: 100}
	if *s.Breakers() != want {
		t.Errorf("%+v", s.Breakers())
	}
	if again, err := Empty().ParseCanonical(s.Canonical()); err != nil || *again.Breakers() != want {
		t.Errorf("%v of %s", err, s.Canonical())
	}
	if s := parseOne(t, "{kind: RetrySettings, spec: {breakers: {mode: Enforce}}}"); *s.Breakers() != policy.DefaultBreakers() {
		t.Errorf("%+v", s.Breakers())
	}
	if Empty().Breakers() != nil {
		t.Error("breakers open although no settings say so")
	}
	for text, code := range map[string]string{
		"{}": codeRequired, "{mode: Perhaps}": codeUnknownValue,
		"{mode: Enforce, openAfter: 1}": codeOutOfRange, "{mode: Enforce, openAfter: 10001}": codeOutOfRange, "{mode: Enforce, queues: 0}": codeOutOfRange,
		"{mode: Enforce, queues: 21}": codeOutOfRange, "{mode: Enforce, window: 0s}": codeOutOfRange, "{mode: Enforce, window: 61m}": codeOutOfRange,
		"{mode: Enforce, hold: 59s}": codeOutOfRange, "{mode: Enforce, hold: 25h}": codeOutOfRange, "{mode: Enforce, probe: 0s}": codeOutOfRange,
		"{mode: Enforce, hold: 2m, probe: 3m}": codeOutOfRange, "{mode: Enforce, hold: 2h, probe: 61m}": codeOutOfRange, "{mode: Enforce, canaries: 0}": codeOutOfRange,
		"{mode: Enforce, canaries: 101}": codeOutOfRange, "{mode: Enforce, ramp: 61m}": codeOutOfRange,
	} {
		_, err := Parse([]File{{"f", []byte("{kind: RetrySettings, spec: {breakers: " + text + "}}")}})
		if problems := Problems(nil); !errors.As(err, &problems) || !slices.ContainsFunc(problems, func(p Problem) bool { return p.Code == code }) {
			t.Errorf("%s: %v, want %s", text, err, code)
		}
	}
}

// TestBadProtection: what retry budgets and the guard's settings refuse, with the place and a fix.
func TestBadProtection(t *testing.T) {
	t.Parallel()
	budget := func(spec string) string {
		return "{apiVersion: refloat.github.io/v1, kind: RetryBudget, metadata: {name: b}, spec: {" + spec + "}}"
	}
	guard := func(spec string) string {
		return "{kind: RetrySettings, spec: {protection: {" + spec + "}}}"
	}
	for text, code := range map[string]string{
		budget(""):                                   codeRequired,
		budget("ratio: 1.001"):                       codeOutOfRange,
		budget("ratio: 20"):                          codeOutOfRange, // a percentage
		budget("ratio: 20%"):                         codeWrongType,
		budget("ratio: -0.1"):                        codeOutOfRange,
		budget("ratio: 0.0001"):                      codeBadDecimal,
		budget("ratio: .nan"):                        codeBadDecimal,
		budget("ratio: 0.2, window: 0s"):             codeOutOfRange,
		budget("ratio: 0.2, window: 9999ms"):         codeOutOfRange,
		budget("ratio: 0.2, window: 24h1ms"):         codeOutOfRange,
		budget("ratio: 0.2, window: -10m"):           codeBadDuration,
		budget("ratio: 0.2, window: 10"):             codeWrongType,
		budget("ratio: 0.2, window: 9999999h"):       codeBadDuration,
		budget("ratio: 0.2, floor: 0"):               codeConflict,
		budget("ratio: 0.2, floor: -1"):              codeOutOfRange,
		budget("ratio: 0.2, floor: 1001"):            codeOutOfRange,
		budget("ratio: 0.2, whenExhausted: Perhaps"): codeUnknownValue,
		budget("ratio: 0.2, mode: Perhaps"):          codeUnknownValue,
		budget("ratio: 0.2, queue: a b"):             codeBadName,

		guard(""):                                            codeRequired,
		guard("mode: Perhaps"):                               codeUnknownValue,
		guard("mode: Enforce, share: 0.501"):                 codeOutOfRange,
		guard("mode: Enforce, share: 10"):                    codeOutOfRange,
		guard("mode: Enforce, share: -0.1"):                  codeOutOfRange,
		guard("mode: Enforce, share: 10%"):                   codeWrongType,
		guard("mode: Enforce, window: 0s"):                   codeOutOfRange,
		guard("mode: Enforce, window: 4h1s"):                 codeOutOfRange,
		guard("mode: Enforce, window: -1m"):                  codeBadDuration,
		guard("mode: Enforce, suspectAfter: 1"):              codeOutOfRange,
		guard("mode: Enforce, suspectAfter: 101"):            codeOutOfRange,
		guard("mode: Enforce, queues: 0"):                    codeOutOfRange,
		guard("mode: Enforce, queues: 5"):                    codeOutOfRange,
		guard("mode: Enforce, rest: 0s"):                     codeOutOfRange,
		guard("mode: Enforce, rest: 31m"):                    codeOutOfRange,
		guard("mode: Enforce, certainRest: 25h"):             codeOutOfRange,
		guard("mode: Enforce, longestRest: 169h"):            codeOutOfRange,
		guard("mode: Enforce, rest: 1h, certainRest: 30m"):   codeOutOfRange,
		guard("mode: Enforce, suspectAfter: 99999999999999"): codeOutOfRange,
	} {
		_, err := Parse([]File{{"f", []byte(text)}})
		problems := Problems(nil)
		if !errors.As(err, &problems) || !slices.ContainsFunc(problems, func(p Problem) bool { return p.Code == code }) {
			t.Errorf("%s: %v, want %s", text, err, code)
		}
		for _, p := range problems {
			if p.Line == 0 || p.Fix == "" {
				t.Errorf("%s: %+v does not say where, or what to do", text, p)
			}
		}
	}
	for _, text := range []string{
		budget("ratio: 0, floor: 0, whenExhausted: Refuse, window: 10s"), budget("ratio: 1, floor: 1000, window: 24h"),
		guard("mode: Enforce, share: 0, window: 1m, suspectAfter: 2, queues: 2"), guard("mode: Shadow, share: 0.5, window: 4h, suspectAfter: 100, queues: 1"),
	} {
		if _, err := Parse([]File{{"f", []byte(text)}}); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestFlat(t *testing.T) {
	t.Parallel()
	s := parseOne(t, threeResources+`---
{apiVersion: armadaproject.io/v1beta1, kind: RetryPolicy, name: flat, defaultAction: 2, rules: [{action: fail, onCategory: a}, {action: Retry, onCategory: b, onSubcategory: c}]}
---
{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: rich}, spec: {retryLimit: 1, defaultAction: Fail, selectableByJobs: false, rules: [{name: x, action: Ignore, onFailureCategory: [a, b]}]}}
`)
	flat, beyond := s.Flat("flat")
	want := Flat{"flat", 0, "Retry", []FlatRule{{"Fail", "a", ""}, {"Retry", "b", "c"}}}
	if diff := cmp.Diff(want, flat); diff != "" || beyond != nil {
		t.Errorf("%v %s", beyond, diff)
	}
	if _, beyond := s.Flat("rich"); !slices.Equal(beyond, []string{"spec.rules[0].action", "spec.rules[0].name", "spec.selectableByJobs"}) {
		t.Errorf("rich: %v", beyond)
	}
	if _, beyond := s.Flat("empty"); !slices.Equal(beyond, []string{"spec.defaultAction", "spec.retryLimit"}) {
		t.Errorf("empty: %v", beyond)
	}
	if _, beyond := s.Flat("nobody"); beyond == nil {
		t.Error("a policy that is not there")
	}
}

package api_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/refloat/refloat/internal/test/planted"
)

// bug breaks what a test holds, by patches of the source.
type bug struct {
	test    string
	what    string
	patches []patch
}

// patch changes a file of internal/.
type patch = planted.Patch

func (b *bug) planted() *planted.Bug {
	return &planted.Bug{Dir: "internal", What: b.what, Patches: b.patches}
}

const histories = "TestChangeHistories"

// allPlanted are the bugs that must be caught.
func allPlanted() []bug {
	return []bug{
		{histories, "what a generation was made of is not checked", []patch{{
			"policylog/shared.go", "case madeOf != nil && *madeOf != s.effective:", "case false:",
		}}},
		{histories, "a generation that came too late is put into force", []patch{{
			"policylog/shared.go", "		g.err = fmt.Errorf(", "		g.entry = entry.withoutText()\n		g.err = fmt.Errorf(",
		}, {
			"policylog/shared.go", "if g.entry == nil || g.err != nil {", "if g.entry == nil || g.err != nil && !errors.Is(g.err, ErrSuperseded) {",
		}}},
		{histories, "an edit drops the overrides", []patch{{
			"api/change.go", "return set, now.ActiveOverrides(), nil", "return set, nil, nil",
		}}},
		{histories, "overrides are in the log and not in the set", []patch{{
			"policylog/entry.go", "	return set.WithOverrides(plain...)", "	return set, nil",
		}}},
		{histories, "of two overrides on a queue the later one counts alone", []patch{{
			"api/overrides.go", "return o.Queue == b.Queue && o.Kill == b.Kill && o.Node == \"\" && o.Category == \"\"\n", "return o.Queue == b.Queue\n",
		}}},
		{histories, "a release takes all overrides off", []patch{{
			"api/overrides.go", "case !removes(&b):", "case false:",
		}}},
		{histories, "a generation is activated in the middle of an envelope", []patch{{
			"evaluator/live.go", "		out, err := o.proc.StepAs(fit.form, m)",
			"		if err := o.cfg.Policies.Refresh(); err != nil {\n			return nil, err\n		}\n		for _, r := range o.activations() {\n			env.Records, records = append(env.Records, chain.AppendRecord(nil, r)), append(records, r)\n		}\n		out, err := o.proc.StepAs(fit.form, m)",
		}}},
		{histories, "an owner looks at the policies log only when it starts", []patch{{
			"evaluator/live.go", "	if err := o.cfg.Policies.Refresh(); err != nil {\n		return err\n	}\n", "",
		}}},
		{histories, "a generation is named, and the one before it decides", []patch{{
			"evaluator/live.go", "		o.proc.Rules = Rules{Generation: newest, Set: set.Set}\n", "		_ = set\n",
		}}},
		{histories, "a change is answered before it is read back", []patch{{
			"policylog/store.go", "	writeErr := s.append(ctx, a, payload)\n",
			"	writeErr := s.append(ctx, a, payload)\n	if writeErr == nil {\n		return &Version{Entry: &Entry{Number: madeOf + 1, Request: a.request}}, nil\n	}\n",
		}}},
		{histories, "a write that failed is answered as one that was not made", []patch{{
			"policylog/store.go", "return nil, errors.Join(ErrUnknown, writeErr, err)\n", "return nil, ErrUnusable\n",
		}}},
		{histories, "the request id is ignored", []patch{{
			"policylog/store.go", "edit: &e, request: e.Request}", "edit: &e}",
		}}},
		{histories, "another change with the same request id is answered as made", []patch{{
			"policylog/store.go", "if v != nil && v.Request != request {", "if false {",
		}}},
		{histories, "a request that is older than its pause is refused although it was made", []patch{{
			"api/overrides.go", "	if len(verbs) == 0 {", "	if until != 0 && until <= s.Now().UnixNano() {\n		return nil, status.Error(codes.InvalidArgument, \"late\")\n	}\n	if len(verbs) == 0 {",
		}}},
		{histories, "an update does not look at the generation", []patch{{
			"api/change.go", "	if since == read {", "	if since == read || true {",
		}}},
		{histories, "since when a resource is so is lost by a rollback", []patch{{
			"policylog/store.go", "			since[c.ID] = v.Number", "			if _, was := since[c.ID]; !was {\n				since[c.ID] = v.Number\n			}",
		}}},
		{histories, "an apply does not look at the generation", []patch{{
			"api/service.go", "if r.Generation != 0 && r.Generation != now.Generation() {", "if false {",
		}}},
		{histories, "a dry run is none", []patch{{
			"api/change.go", "		if a.dryRun {", "		if false {",
		}}},
		{histories, "a deletion leaves queues that name what is gone", []patch{{
			"api/change.go", "if users := set.Users(c.Name); len(users) > 0 {", "if users := set.Users(c.Name); false {",
		}}},
		{histories, "Armada's service overwrites what its form cannot say", []patch{{
			"api/armada.go", "		case is:\n", "		case false:\n",
		}}},
		{"TestNamesNotRevealedByTime", "an unknown user costs nothing", []patch{{
			"api/auth.go", "		user.PasswordHash = string(a.decoys[a.cost])\n", "		return Principal{}, errNoEntry\n",
		}}},
		{"TestSignIn", "a refusal shows what the verifier says", []patch{{
			"api/auth.go", "		return Principal{}, errNoEntry // the error may contain", "		return Principal{}, status.Error(codes.Unauthenticated, err.Error()+token) // the error may hold",
		}}},
		{"TestSignIn", "the audience is not looked at", []patch{{
			"api/auth.go", "{{ClientID: a.OIDC.Audience}}", "{{SkipClientIDCheck: true}}",
		}}},
		{"TestSignIn", "expired tokens are good", []patch{{
			"api/auth.go", "{{ClientID: a.OIDC.Audience}}", "{{ClientID: a.OIDC.Audience, SkipExpiryCheck: true}}",
		}}},
		{"TestSignIn", "a body is decoded before it is known who asks", []patch{{
			"api/server.go", "	if err == nil {\n		err = f.serve(c, h, w, r)", "	{\n		err = f.serve(c, h, w, r)",
		}}},
		{"TestAudit", "a change that is refused before its body is read is not logged", []patch{{
			"api/server.go", "		f.service.refused(r, who, c, err)\n", "",
		}}},
		{"TestProviderAway", "the provider is asked for every key that somebody invents", []patch{{
			"api/issuer.go", "	case s.limit.Allow():", "	case true:",
		}}},
		{"TestBrowsers", "pages of other sites may write", []patch{{
			"api/server.go", "new(http.CrossOriginProtection).Check(r) != nil || foreign(r)", "foreign(r)",
		}}},
		{"TestBrowsers", "pages of other sites may ask for anything", []patch{{
			"api/server.go", "Check(r) != nil || foreign(r)", "Check(r) != nil || foreign(r) && false",
		}}},
		{"TestAddresses", "what a client says of itself is believed", []patch{{
			"api/clients.go", "func(p netip.Prefix) bool { return p.Contains(at) }", "func(netip.Prefix) bool { return true }",
		}}},
		{"TestBrowsers", "any name is one of this machine", []patch{{
			"api/server.go", "auth == nil && !OnLoopback(host)", "false && !OnLoopback(host)",
		}}},
		{"TestPermissions", "settings need what queues need", []patch{{
			"api/auth.go", "		return SetRetrySettings\n", "		return BindRetryPolicies\n",
		}}},
		{"TestPermissions", "who may pause may release a kill", []patch{{
			"api/overrides.go", "[]Verb{KillRetries, PauseRetries}", "[]Verb{PauseRetries}",
		}}},
		{"TestPermissions", "anybody may read", []patch{
			{"api/browser.go", "	if err != nil {\n		return r, who, err", "	if err = nil; err != nil {\n		return r, who, err"},
		}},
		{"FuzzREST", "what is not UTF-8 goes on to the log", []patch{{
			"api/server.go", "strings.Join(append(values, name), \"\")) {", "strings.Join(append(values, name), \"\")) && false {",
		}}},
	}
}

// TestPlantedBugsFit: each patch still finds its place.
func TestPlantedBugsFit(t *testing.T) {
	t.Parallel()
	for _, b := range allPlanted() {
		t.Run(b.what, func(t *testing.T) {
			b.planted().Fits(t)
			planted.Has(t, "./internal/api", b.test)
		})
	}
}

var caughtBy = regexp.MustCompile(`(?m)_test\.go:\d+: (.*)$`)

// TestPlantedBugs breaks what tests hold, one thing at a time: they must see it, the
// histories within 100. It builds a program for each, so it runs only with PLANTED=1.
func TestPlantedBugs(t *testing.T) {
	if os.Getenv("PLANTED") == "" {
		t.Skip("set PLANTED=1 to plant bugs and catch them; it takes minutes")
	}
	var table bytes.Buffer
	for _, b := range allPlanted() {
		t.Run(b.what, func(t *testing.T) {
			run := exec.Command(b.planted().Program(t, "./internal/api"), "-test.run=^"+b.test+"$", "-test.timeout=5m")
			run.Env = append(os.Environ(), "GOMAXPROCS=1", "CHANGES=100", "CHANGES_SEED=")
			out, err := run.CombinedOutput()
			found := caughtBy.FindSubmatch(out)
			if err == nil || found == nil {
				t.Fatalf("not caught: %v\n%.2000s", err, out)
			}
			fmt.Fprintf(&table, "| %s | %.150s |\n", b.what, found[1])
		})
	}
	t.Logf("bug, and how it was caught (by which seed of 1, 2, 3, …):\n%s", &table)
}

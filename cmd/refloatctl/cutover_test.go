package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/schedulerdb/schema"
	"github.com/refloat/refloat/internal/test/pgtest"
	"github.com/refloat/refloat/internal/test/pulsartest"
)

// TestCutoverUsage: what is wrong with the command line shows without a broker.
func TestCutoverUsage(t *testing.T) {
	t.Parallel()
	const dead = " --pulsar pulsar://127.0.0.1:1 --pulsar-admin http://127.0.0.1:1 --job-db postgres://u:s3cret@127.0.0.1:1/x"
	for _, c := range []struct {
		name, args string
		code       int
		want       string
	}{
		{"help of plan", "cutover plan --help", exitFine, "Exit codes: 0 start would succeed"},
		{"help of start", "cutover start --help", exitFine, "--rehearse"},
		{"help of back", "cutover back --help", exitFine, "--node-id-label"},
		{"print config", "cutover back --print-config" + dead, exitFine, "# job-db: (secret) # flag"},
		{"what", "cutover", exitUsage, "cutover: needs a subcommand: back, plan, start"},
		{"no database", "cutover plan --pulsar pulsar://127.0.0.1:1", exitUsage, "--job-db URL is required"},
		{"no cluster", "cutover start --job-db postgres://x", exitUsage, "--pulsar URL is required"},
		{"no admin", "cutover back --job-db postgres://x --pulsar pulsar://127.0.0.1:1", exitUsage, "--pulsar-admin URL is required"},
		{"no subscription", "cutover plan --subscription= " + dead, exitUsage, "--subscription is empty"},
		{"another form", "cutover plan -o yaml" + dead, exitUsage, `-o "yaml"`},
		{"plan has no rehearsal", "cutover plan --rehearse" + dead, exitUsage, "unknown flag: --rehearse"},
		{"dead", "cutover plan" + dead, exitEnvironment, "refloatctl: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := ctl(t, strings.Fields(c.args)...).exits(t, c.code).prints(t, c.want)
			if strings.Contains(r.out+r.err, "s3cret") {
				t.Errorf("a secret is printed: %s%s", r.out, r.err)
			}
		})
	}
}

// The machine-readable contracts of `cutover … -o json`.
var cutoverContracts = map[string][]field{
	"Partition": {{"topic", nil, oneOf("events", "control-plane")}, {"partition", nil, isCount}, {"armadaBacklog", nil, isCount}, {"olderJobs", nil, isCount}},
	"Finding":   {{"about", nil, isText}, {"what", nil, isText}},
	"Step":      {{"what", nil, isText}, {"state", nil, oneOf("did", "would", "as is")}},
	"Command":   {{"command", nil, isText}},
}

// TestCutover runs the commands against a real broker and a real PostgreSQL.
func TestCutover(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a Pulsar broker and PostgreSQL")
	}
	b, db := pulsartest.Start(t, pulsartest.Options{}), pgtest.Database(t)
	conn, err := pgx.Connect(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	tenant, namespace, _ := strings.Cut(b.Namespace(t), "/")
	run := func(args ...string) result {
		t.Helper()
		if args[0] == "cutover" {
			args = append(args, "--job-db", db)
		}
		return ctl(t, append(args, "--pulsar", b.URL, "--pulsar-admin", b.AdminURL, "--pulsar-tenant", tenant, "--pulsar-namespace", namespace)...)
	}
	run("topics", "create", "--create-events", "--partitions", "3").exits(t, exitFine)
	run("feed", recordingFile("plain")).exits(t, exitFine)
	run("cutover", "plan").exits(t, exitFinding).prints(t, "refuse job database: ", "not Armada's scheduler database", "refuse partition 2: there is no subscription scheduler-ingester", "fix: pass ")
	if err := schema.Create(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"0", "1", "2"} {
		at := b.AdminURL + "/admin/v2/persistent/" + tenant + "/" + namespace + "/events-partition-" + p + "/subscription/scheduler-ingester"
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, at, strings.NewReader(`{"ledgerId":-1,"entryId":-1}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.Body.Close() != nil || resp.StatusCode/100 != 2 {
			t.Fatalf("%v, %+v", err, resp)
		}
	}
	run("cutover", "back").exits(t, exitFinding).prints(t, "refuse partition 0: our ingester has no position in it")
	r := run("cutover", "plan").exits(t, exitFine).prints(t, "PARTITION  ARMADA UP TO", "beginning", "0 unfinished jobs", "would  partition 0: our ingester starts at the beginning",
		"  ingester --pulsar pulsar://", " --mode holdback --job-db ", "  evaluator --pulsar")
	if strings.ContainsAny(r.out, rewriting) {
		t.Error("the output is no plain text")
	}
	run("cutover", "start", "--rehearse").exits(t, exitFine).prints(t, "would  create or migrate our ingester's tables")
	run("cutover", "start").exits(t, exitFine).prints(t, "did    create or migrate our ingester's tables", "Then start")
	run("cutover", "start").exits(t, exitFinding).prints(t, "our ingester already has a position")
	run("cutover", "back").exits(t, exitFine).prints(t, "as is  partition 2: move subscription scheduler-ingester to the beginning")
	run("cutover", "plan").exits(t, exitFine).prints(t, "note   job database: was rolled back at ", "would  empty them")
	kinds := map[string]int{}
	for _, what := range []string{"back", "plan"} {
		for line := range strings.Lines(run("cutover", what, "-o", "json").out) {
			o := jsonLine(t, line)
			kinds[o.text("record")]++
			if err := o.follows(cutoverContracts[o.text("record")]); err != nil {
				t.Errorf("%v: %s", err, line)
			}
		}
	}
	if kinds["Partition"] != 6 || kinds["Finding"] != 1 || kinds["Step"] != 10 || kinds["Command"] != 2 || len(kinds) != 4 {
		t.Errorf("lines %v", kinds)
	}
}

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/api/pb"
)

// served starts up with an API, and returns it with what calls its server.
func served(t *testing.T, data string, more ...string) (*process, func(args ...string) result) {
	t.Helper()
	p := start(t, append([]string{"up", "--data", data}, more...)...)
	p.err.await(t, "serving the page and the policy API")
	return p, func(args ...string) result {
		t.Helper()
		return ctl(t, append(args, "--data", data)...)
	}
}

func (p *process) ends(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	p.exits(t, exitFine)
}

// codesSince counts the decisions of a data directory by their code, from a generation on.
func codesSince(t *testing.T, data string, from int64) map[string]int {
	t.Helper()
	n := map[string]int{}
	for line := range strings.Lines(ctl(t, "get", "decisions", "--data", data, "-o", "json").exits(t, exitFine).out) {
		if o := jsonLine(t, line); o.number("generation") >= from {
			n[o.text("code")]++
		}
	}
	return n
}

// From nothing to a policy that decides: apply, look, change, go back.
func TestPoliciesOverTheAPI(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	p, at := served(t, data, "--partitions", "3")
	inForce := func(generation string) {
		t.Helper()
		until(t, "generation "+generation+" is in force", func() bool {
			return strings.Contains(at("get", "policies").exits(t, exitFine).out, "Partition 2: generation "+generation+", since 20")
		})
	}
	inForce("0")
	at("apply", "-f", testPolicies, "--dry-run", "client").exits(t, exitFine).prints(t, "RetryPolicy infra is valid")
	for _, dry := range [][]string{{"--dry-run"}, {"--dry-run=server"}, {"--dry-run", "server"}} {
		at(append([]string{"apply", "-f", testPolicies}, dry...)...).exits(t, exitFine).prints(t, "RetryPolicy infra created (dry run)")
	}
	at("apply", "--dry-run", "-f", testPolicies).exits(t, exitFine).prints(t, "RetryPolicy infra created (dry run)")
	at("apply", "-f", testPolicies, "--dry-run", "sever").exits(t, exitUsage).prints(t, "did you mean server?")
	at("apply", "-f", testPolicies, "--dry-run", "server", "more").exits(t, exitUsage).prints(t, "files are given with -f")
	at("apply", "-f", testPolicies, "more").exits(t, exitUsage).prints(t, "files are given with -f, as -f more")
	at("apply", "-f", testPolicies, "--reason", "first").exits(t, exitFine).prints(t, "RetryPolicy infra created", "generation 1")
	at("apply", "-f", testPolicies).exits(t, exitFine).prints(t, "RetryPolicy infra unchanged", "generation 1")
	inForce("1")
	at("get", "policies").prints(t, "infra   4      -        1                 Queue genomics, Queue vision-train")
	at("get", "queues").exits(t, exitFine).prints(t, `{"retryPolicies":["infra","app"]}`)

	// What get prints, apply reads, and it is the same.
	text := at("get", "resources", "-o", "yaml").exits(t, exitFine).out
	file := writeFile(t, t.TempDir(), "all.yaml", text)
	at("apply", "-f", file, "--prune").exits(t, exitFine).prints(t, "Queue genomics unchanged", "generation 1")
	ctl(t, "lint", file).exits(t, exitFine)

	changed := writeFile(t, t.TempDir(), "infra.yaml", strings.Replace(at("get", "policies", "infra", "-o", "yaml").exits(t, exitFine).out, "retryLimit: 2", "retryLimit: 5", 1))
	at("apply", "-f", changed, "--reason", "more").exits(t, exitFine).prints(t, "RetryPolicy infra updated", "generation 2")
	at("history", "policy", "infra").exits(t, exitFine).prints(t, "RetryPolicy infra updated", "more", "first")
	at("get", "policies", "infra", "--generation", "1", "-o", "yaml").exits(t, exitFine).prints(t, "retryLimit: 2")
	at("rollback", "policy", "infra", "--to", "1", "--reason", "back").exits(t, exitFine).prints(t, "RetryPolicy infra updated", "generation 3")
	at("get", "policies", "infra", "-o", "yaml").prints(t, "retryLimit: 2")
	at("delete", "policy", "infra").exits(t, exitEnvironment).prints(t, "used by Queue genomics, Queue vision-train")
	at("delete", "policy", "extra").exits(t, exitFine).prints(t, "RetryPolicy extra deleted")
	at("get", "policies", "extra").exits(t, exitEnvironment).prints(t, "RetryPolicy extra does not exist")
	at("apply", "-f", writeFile(t, t.TempDir(), "bad.yaml", "kind: Queue\nname: q\nkiled: true\n")).exits(t, exitFinding).prints(t, "did you mean killed?")
	var line struct {
		Kind, Name string
		Document   json.RawMessage
	}
	if err := json.Unmarshal([]byte(at("get", "policies", "app", "-o", "json").exits(t, exitFine).out), &line); err != nil || line.Name != "app" || len(line.Document) == 0 {
		t.Errorf("get -o json: %+v, %v", line, err)
	}

	// Group policies are resources like the others.
	group := writeFile(t, t.TempDir(), "group.yaml", "apiVersion: refloat.github.io/v1\nkind: GroupPolicy\nmetadata: {name: gang}\nspec: {rules: []}\n")
	at("apply", "-f", group, "--reason", "gangs").exits(t, exitFine).prints(t, "GroupPolicy gang created", "generation 5")
	at("apply", "-f", group).exits(t, exitFine).prints(t, "GroupPolicy gang unchanged")
	at("get", "group-policies").exits(t, exitFine).prints(t, "gang", `{"spec":{"rules":[]}}`)
	at("get", "group-policies", "gang", "-o", "yaml").exits(t, exitFine).prints(t, "apiVersion: refloat.github.io/v1", "rules: []")
	at("get", "group-policies", "gong").exits(t, exitEnvironment).prints(t, "GroupPolicy gong does not exist")
	at("history", "group-policy", "gang").exits(t, exitFine).prints(t, "GroupPolicy gang created", "gangs")
	at("delete", "group-policy", "gang").exits(t, exitFine).prints(t, "GroupPolicy gang deleted")
	p.ends(t)
	at("get", "policies").exits(t, exitFine).prints(t, "this is the newest generation in its policies log")

	// What was applied decides.
	ctl(t, "up", "--data", data, "--feed", recordingFile("preempted"), "--exit-when-drained").exits(t, exitFine)
	if n := codesSince(t, data, 4); n["RuleIgnore"]+n["RuleRetry"] == 0 {
		t.Errorf("decisions %v", n)
	}
	ctl(t, "verify", "--data", data).exits(t, exitFine)
}

// A kill is in force at each partition's next decision, also over files that are
// watched, stays through a restart and new files, and ends when it is released.
func TestKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, policies := filepath.Join(dir, "data"), filepath.Join(dir, "policies")
	if err := os.CopyFS(policies, os.DirFS(testPolicies)); err != nil {
		t.Fatal(err)
	}
	p, at := served(t, data, "--policies", policies, "--feed", recordingFile("plain"), "--pace", "2x")
	at("apply", "-f", testPolicies).exits(t, exitEnvironment).prints(t, "come from the files of "+policies)
	until(t, "something is decided", func() bool {
		return ctl(t, "get", "decisions", "--data", data, "-o", "json").out != ""
	})
	killed := at("kill", "retries", "--all", "--reason", "INC-1").exits(t, exitFine).prints(t, "retries of all queues are killed", "(INC-1)")
	generation, err := strconv.ParseInt(regexp.MustCompile(`generation (\d+)`).FindStringSubmatch(killed.out)[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	at("get", "policies").exits(t, exitFine).prints(t, "Retries of all queues are killed", "INC-1", "Read-only here")
	until(t, "a retry was refused", func() bool { return codesSince(t, data, generation)["KillSwitch"] > 0 })
	p.ends(t)

	// Without policies, files are not in force until somebody says so.
	emptied(t, data, policies)

	// New files, and a restart: it is still killed.
	writeFile(t, policies, "more.yaml", "kind: Queue\nname: another\nretryPolicies: [infra]\n")
	ctl(t, "up", "--data", data, "--policies", policies, "--feed", recordingFile("plain"), "--exit-when-drained").exits(t, exitFine)
	n := codesSince(t, data, generation)
	if n["RuleRetry"]+n["RuleIgnore"]+n["DefaultRetry"] > 0 || n["KillSwitch"] < 2 {
		t.Errorf("after the kill: %v", n)
	}
	for line := range strings.Lines(ctl(t, "get", "decisions", "--data", data, "-o", "json").out) {
		if o := jsonLine(t, line); o.text("code") == "KillSwitch" {
			ctl(t, "explain", o.text("jobId"), "--data", data, "--run", strconv.FormatInt(o.number("runIndex"), 10)).exits(t, exitFine).
				prints(t, "Retries of all queues are killed", "INC-1")
			break
		}
	}
	ctl(t, "verify", "--data", data).exits(t, exitFine)

	p, at = served(t, data, "--policies", policies)
	at("kill", "retries", "--queue", "genomcs", "--reason", "x").exits(t, exitEnvironment).prints(t, `queue "genomcs" is unknown`, "did you mean genomics?", "--force")
	at("kill", "retries", "--queue", "genomics", "--reason", "x").exits(t, exitFine)
	at("resume", "retries", "--queue", "genomics", "--reason", "x").exits(t, exitFine)
	at("resume", "retries", "--all", "--reason", "fixed").exits(t, exitFine)
	at("pause", "retries", "--all", "--until", "2199-01-01T00:00:00Z", "--reason", "storage").exits(t, exitFine).prints(t, "paused until 2199-01-01T00:00:00Z")
	at("history").exits(t, exitFine).prints(t, "no longer: retries of queue genomics are killed", "no longer: retries of all queues are killed", "files of "+policies)
	p.ends(t)
	before := codesSince(t, data, 0)
	ctl(t, "up", "--data", data, "--policies", policies, "--feed", recordingFile("preempted"), "--exit-when-drained").exits(t, exitFine)
	if after := codesSince(t, data, 0); after["RuleIgnore"] <= before["RuleIgnore"] {
		t.Errorf("after resume: %v, before %v", after, before)
	}
	if out := ctl(t, "get", "jobs", "--data", data, "--waiting").exits(t, exitFine).out; !strings.Contains(out, "2199-01-01T00:00:00.000Z") {
		t.Errorf("nothing waits for the end of the pause:\n%s", out)
	}
}

// emptied moves the policy files away and back, while a server runs on them.
func emptied(t *testing.T, data, policies string) {
	t.Helper()
	p, at := served(t, data, "--policies", policies)
	before := at("get", "policies", "-o", "json").exits(t, exitFine).out
	if err := os.Rename(policies, policies+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(policies, 0o755); err != nil {
		t.Fatal(err)
	}
	apply := []string{"apply", "-f", policies, "--prune"}
	at(apply...).exits(t, exitUsage).prints(t, "no resource in it")
	at("apply", "-f", policies+".away", "--prune", "--allow-empty").exits(t, exitEnvironment).prints(t, "come from the files of")
	until(t, "the empty directory can be confirmed", func() bool {
		return at(append(apply, "--allow-empty", "--dry-run", "server")...).code == exitFine
	})
	if now := at("get", "policies", "-o", "json").exits(t, exitFine).out; now != before {
		t.Errorf("with an empty directory: %s\nwant %s", now, before)
	}
	until(t, "it is confirmed", func() bool { // more than ten changes a second are refused
		return at(append(apply, "--allow-empty", "--reason", "none for now")...).code == exitFine
	})
	if now := at("get", "policies", "-o", "json").exits(t, exitFine).out; now != "" {
		t.Errorf("confirmed: %s", now)
	}
	p.ends(t)
	if err := os.Remove(policies); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(policies+".away", policies); err != nil {
		t.Fatal(err)
	}
}

// TestAvoidNode: retries avoid the node, and explain says who wants that and why.
func TestAvoidNode(t *testing.T) {
	t.Parallel()
	data, policies := t.TempDir(), testPolicies
	p, at := served(t, data, "--policies", policies)
	at("avoid", "node", "gpu-17", "--for", "24h", "--reason", "XID errors").exits(t, exitFine).prints(t, "retries avoid node gpu-17 until", "(XID errors)")
	at("trust", "node", "gpu-18", "--for", "24h", "--reason", "mended").exits(t, exitFine).prints(t, "retries avoid node gpu-17 until", "node gpu-18 is trusted until")
	at("resume", "retries", "--everything", "--reason", "x").exits(t, exitFine).prints(t, "no such override", "gpu-17", "gpu-18")
	at("get", "policies").exits(t, exitFine).prints(t, "Retries avoid node gpu-17 until", "XID errors", "Node gpu-18 is trusted")
	at("get", "nodes").exits(t, exitFine).prints(t, "gpu-17", "avoided", "XID errors", "kubectl cordon gpu-17", "gpu-18", "trusted")
	if out := at("get", "nodes", "gpu-18").exits(t, exitFine).prints(t, "trusted").out; strings.Contains(out, "gpu-17") {
		t.Errorf("of gpu-18:\n%s", out)
	}
	at("get", "nodes", "gpu-19").exits(t, exitFine).prints(t, "No override is about gpu-19.")
	p.ends(t)
	ctl(t, "up", "--data", data, "--policies", policies, "--feed", recordingFile("plain"), "--exit-when-drained").exits(t, exitFine)
	explained := false
	for line := range strings.Lines(ctl(t, "get", "decisions", "--data", data, "-o", "json").exits(t, exitFine).out) {
		o := jsonLine(t, line)
		retried := o.text("decision") == "JobRequeued"
		if strings.Contains(line, "gpu-17") != retried || strings.Contains(line, "gpu-18") {
			t.Errorf("retried %t: %s", retried, line)
		}
		if retried && !explained {
			explained = true
			ctl(t, "explain", o.text("jobId"), "--data", data, "--run", strconv.FormatInt(o.number("runIndex"), 10)).exits(t, exitFine).
				prints(t, "Retries avoid node gpu-17 until", "XID errors")
		}
	}
	if !explained {
		t.Error("nothing was retried")
	}
	ctl(t, "verify", "--data", data).exits(t, exitFine)
}

// TestBreaker: an open breaker holds retries of its category without counting them, and explain says who opened it and why.
func TestBreaker(t *testing.T) {
	t.Parallel()
	data, policies := t.TempDir(), testPolicies
	p, at := served(t, data, "--policies", policies)
	at("get", "breakers").exits(t, exitFine).prints(t, "No breaker is open")
	at("open", "breaker", "--category", "infrastructure", "--all", "--for", "24h", "--reason", "registry is down").exits(t, exitFine).
		prints(t, "retries of all queues after failures of category infrastructure are held until", "(registry is down)")
	at("open", "breaker", "--category", "other", "--subcategory", "x", "--all", "--for", "24h", "--reason", "y").exits(t, exitFine)
	at("get", "breakers").exits(t, exitFine).prints(t, "infrastructure", "all", "registry is down", "other/x")
	at("get", "breakers", "-o", "json").exits(t, exitFine).prints(t, `"category":"other","subcategory":"x"`)
	if out := at("get", "breakers", "other").exits(t, exitFine).prints(t, "other/x").out; strings.Contains(out, "infrastructure") {
		t.Errorf("of category other:\n%s", out)
	}
	at("get", "breakers", "oom").exits(t, exitFine).prints(t, "No override is about oom.")
	at("close", "breaker", "--category", "other", "--all", "--reason", "x").exits(t, exitFine).prints(t, "no such override")
	at("close", "breaker", "--category", "other", "--subcategory", "x", "--all", "--reason", "x").exits(t, exitFine).prints(t, "infrastructure")
	at("get", "policies").exits(t, exitFine).prints(t, "Retries of all queues after failures of category infrastructure are held until", "registry is down")
	p.ends(t)
	ctl(t, "up", "--data", data, "--policies", policies, "--feed", recordingFile("plain"), "--exit-when-drained").exits(t, exitFine)
	held := 0
	for line := range strings.Lines(ctl(t, "get", "decisions", "--data", data, "--code", "BreakerHeld", "-o", "json").exits(t, exitFine).out) {
		o := jsonLine(t, line)
		if held++; held == 1 {
			ctl(t, "explain", o.text("jobId"), "--data", data, "--run", strconv.FormatInt(o.number("runIndex"), 10)).exits(t, exitFine).
				prints(t, "a breaker is open for the category of the failure", "category infrastructure are held until", "registry is down")
			ctl(t, "explain", o.text("jobId"), "--data", data, "--run", strconv.FormatInt(o.number("runIndex"), 10), "--why-not", "Retry").exits(t, exitFine).
				prints(t, "no breaker was open for its category by an override", "RuleRetry")
			tests := filepath.Join(t.TempDir(), "tests")
			ctl(t, "test", "record", "--job", o.text("jobId"), "--data", data, "--out", tests).exits(t, exitFine)
			ctl(t, "test", tests).exits(t, exitFine)
		}
	}
	if held == 0 {
		t.Error("nothing was held")
	}
	if n := jsonLine(t, ctl(t, "get", "breakers", "--data", data, "-o", "json").exits(t, exitFine).out).number("held"); n == 0 || int(n) > held {
		t.Errorf("%d are held of %d", n, held)
	}
	ctl(t, "whatif", "--data", data, "--policies", policies).exits(t, exitFine).prints(t, "against what was decided: 0 of ") // held there too
	ctl(t, "verify", "--data", data).exits(t, exitFine)
}

func TestOverrideUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"kill":               "what to kill is missing: `kill retries`",
		"kill retries":       "give --queue NAME, or --all",
		"kill retries --all": "--reason TEXT is required",
		"kill retries --all --queue ml --reason x":                    "--queue ml and --all: give one of them, not both",
		"resume retries --all --everything --reason x":                "give only one of --queue NAME, --all",
		"pause retries --all --reason x":                              "give --until TIME or --for DURATION",
		"pause retries --all --reason x --for -1h":                    "above 0",
		"pause retries --all --reason x --until yesterday":            "want a time such as",
		"pause retries --all --reason x --until 2020-01-01T00:00:00Z": "in the past",
		"avoid":                             "what to avoid is missing: `avoid node NAME`",
		"avoid node a b":                    "argument \"b\" is one too many: want `avoid node NAME`",
		"avoid node":                        "NAME is missing: `avoid node NAME`",
		"avoid nod a":                       "argument \"nod\": want `avoid node NAME`",
		"open breakers --all --reason x":    "argument \"breakers\": want `open breaker`",
		"open breaker infrastructure --all": "argument \"infrastructure\" is one too many: want `open breaker`",
		"pause retries --all --for 1h --until 2199-01-01T00:00:00Z --reason x": "--until and --for: give one of them, not both",
		"apply d.yaml":                           "-f d.yaml",
		"avoid node a --reason x":                "give --until TIME or --for DURATION",
		"open":                                   "what to open is missing: `open breaker`",
		"open breaker --all --for 1h --reason x": "--category NAME is required",
		"open breaker --all --category x --reason x":    "give --until TIME or --for DURATION",
		"open breaker --category x --for 1h --reason x": "give --queue NAME, or --all",
		"close breaker --all --reason x":                "--category NAME is required",
		"trust node a --for 1h":                         "--reason TEXT is required",
		"history":                                       "--data DIR or --server HOST:PORT is required",
		"history pod x":                                 "want policy NAME",
		"rollback policy infra":                         "--to GENERATION is required",
		"rollback --to 3":                               "or --everything",
		"delete queue":                                  "queue needs a name",
		"delete group-policy":                           "group-policy needs a name",
		"get policies -o xml":                           "use table, yaml or json",
		"apply":                                         "-f PATH is required",
		"apply -f . --dry-run yes":                      "use none, client or server",
		"up --data x --api 0.0.0.0:1":                   "set permissions with --api-auth",
	} {
		ctl(t, strings.Fields(args)...).exits(t, exitUsage).prints(t, want)
	}
	ctl(t, "get", "policies", "--server", "127.0.0.1:1").exits(t, exitEnvironment).prints(t, "no server answers at 127.0.0.1:1")
}

// TestHistoryGaps: a generation that had no effect is in the list too; not in the list of one resource.
func TestHistoryGaps(t *testing.T) {
	t.Parallel()
	var generations []*pb.Generation
	for _, n := range []uint64{6, 5, 2, 1} {
		generations = append(generations, &pb.Generation{Generation: n, Author: "ann"})
	}
	for all, want := range map[bool]string{true: "6 5 4 3 2 1", false: "6 5 2 1"} {
		var out strings.Builder
		if err := showHistory(&out, show.FormTable, generations, all); err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			if fields := strings.Fields(line); fields[0] != "GENERATION" {
				got = append(got, fields[0])
			}
		}
		if strings.Join(got, " ") != want || all != strings.Contains(out.String(), "another change came first") {
			t.Errorf("all %v:\n%s\nwant %s", all, &out, want)
		}
	}
}

// TestInForceOnce: what several servers say is printed once.
func TestInForceOnce(t *testing.T) {
	t.Parallel()
	status := func(partitions ...*pb.PartitionStatus) *pb.StatusResponse {
		return &pb.StatusResponse{Generation: 3, ReadOnly: "files of /p", Source: &pb.Source{Address: "armada:50051"}, Partitions: partitions}
	}
	one, two, old := &pb.PartitionStatus{Partition: 1, Generation: 3}, &pb.PartitionStatus{Partition: 2, Generation: 3}, &pb.PartitionStatus{Partition: 2, Generation: 2}
	var out strings.Builder
	inForceLines(&out, []*pb.StatusResponse{status(one, two), status(one, old)}, nil)
	lines := map[string]int{}
	for line := range strings.Lines(out.String()) {
		if lines[line]++; lines[line] > 1 {
			t.Errorf("twice: %s", line)
		}
	}
	for _, want := range []string{"Read-only here: files of /p", "Armada at armada:50051", "Partition 1: generation 3", "Partition 2: generation 3", "Partition 2: generation 2"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
}

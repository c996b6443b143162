package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/audit/report"
	"github.com/refloat/refloat/internal/query"
)

// TestServerAnswersAlike: a command that asks a server prints what it prints with the data directory that the server has,
// byte for byte.
func TestServerAnswersAlike(t *testing.T) {
	t.Parallel()
	data := drainedData(t)
	server := address(t, answering(t, data, nil))
	decision := jsonLine(t, ctl(t, "get", "decisions", "--data", data, "--last", "1", "-o", "json").exits(t, exitFine).out)
	job, queue, set, at := decision.text("jobId"), decision.text("queue"), decision.text("jobSet"), decision.text("eventTime")
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(policies, []byte("kind: RetryPolicy\nname: infra\ndefault: {action: Fail}\n---\nkind: Queue\nname: \""+queue+"\"\nretryPolicies: [infra]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	commands := [][]string{
		{"get", "jobs"},
		{"get", "jobs", "--state", "Failed", "--sort", "-submitted", "--limit", "3"},
		{"get", "job", job},
		{"get", "job", job, "--at", at},
		{"get", "job", "nosuchjob"},
		{"get", "runs", "--queue", queue},
		{"get", "decisions"},
		{"get", "decisions", "--last", "7"},
		{"get", "decisions", "--code", "RuleLimt"},
		{"get", "groups"},
		{"explain", job},
		{"explain", job, "--run", "0"},
		{"explain", job, "--all-runs"},
		{"explain", job, "--why-not", "Retry"},
		{"explain", job, "--why-not", "Fail"},
		{"explain", "queue", queue},
		{"explain", "queue", queue, "--since", "2026-11-20T23:38:14Z"},
		{"explain", "job-set", queue + "/" + set},
		{"explain", "queue", "nosuchqueue"},
		{"top", "retries", "--by", "rule"},
		{"top", "retries", "--by", "rule", "--jobs"},
		{"top", "retries", "--by", "node", "--limit", "2"},
		{"shadow", "report"},
		{"whatif", "--policies", policies},
		{"whatif", "--policies", policies, "--jobs", "0"},
		{"whatif", "--set", "settings.globalMaxRetries=1", "--jobs", "3"},
		{"whatif", "--set", "settings.nosuchfield=1"},
		{"get", "partitions"},
	}
	for _, c := range append(commands, groupCommands(t, data)...) {
		for _, output := range []string{"table", "json"} {
			args := append(slices.Clip(c), "-o", output)
			want, got := ctl(t, append(args, "--data", data)...), ctl(t, append(args, "--server", server)...)
			if got.out != want.out || got.code != want.code {
				t.Errorf("%v: exit code %d, from the server %d; stderr %q and %q; %s", args, want.code, got.code, want.err, got.err, differsFirst(want.out, got.out))
			}
			if (want.err == "") != (got.err == "") {
				t.Errorf("%v prints the error %q, from the server %q", args, want.err, got.err)
			}
		}
	}
}

// TestVerifyByServer: a server's verification says what one of the same logs says, and is not signed by somebody else.
func TestVerifyByServer(t *testing.T) {
	t.Parallel()
	data, dir := drainedData(t), t.TempDir()
	server := address(t, answering(t, data, nil))
	want, got := ctl(t, "verify", "--data", data).exits(t, exitFine).out, ctl(t, "verify", "--server", server).exits(t, exitFine).out
	if got != want {
		t.Error(differsFirst(want, got))
	}
	reports := [2]report.Report{}
	for i, from := range [][]string{{"--data", data}, {"--server", server}} {
		if err := json.Unmarshal([]byte(ctl(t, append(from, "verify", "-o", "json")...).exits(t, exitFine).out), &reports[i]); err != nil {
			t.Fatal(err)
		}
	}
	if reports[1].Source != "server "+server {
		t.Errorf("source %q", reports[1].Source)
	}
	reports[1].Source, reports[1].Created, reports[1].Program = reports[0].Source, reports[0].Created, reports[0].Program
	if fmt.Sprintf("%+v", reports[0]) != fmt.Sprintf("%+v", reports[1]) || reports[0].Decisions == 0 {
		t.Errorf("%+v\nthe server says\n%+v", reports[0], reports[1])
	}
	key, public := newKeys(t, dir)
	signed := writeFile(t, dir, "report.json", ctl(t, "verify", "--data", data, "--sign", key).exits(t, exitFine).out)
	ctl(t, "verify", "--check-signature", signed, "--public-key", public, "--server", server).exits(t, exitFine).prints(t, "the logs still have all")
	if r := ctlIn(t, []string{"REFLOAT_SERVER=" + server}, "verify", "--check-signature", signed, "--public-key", public).exits(t, exitFine); strings.Contains(r.out, "the logs") {
		t.Errorf("nobody asked for the logs: %s", r.out)
	}
	ctl(t, "verify", "--server", server, "--sign", key).exits(t, exitUsage)
	ctl(t, "verify", "--server", server, "--checkpoints", dir).exits(t, exitUsage)
	ctl(t, "verify", "--server", server, "--archive", dir).exits(t, exitUsage)
	ctl(t, "verify", "--server", server, "--data", data).exits(t, exitUsage)
}

// TestCompletions: what jobs, runs, decisions and resources have completes arguments and flags, from a data directory and from a server.
func TestCompletions(t *testing.T) {
	t.Parallel()
	data := drainedData(t)
	server := address(t, answering(t, data, nil))
	d := jsonLine(t, ctl(t, "get", "decisions", "--data", data, "--code", "RuleRetry", "--last", "1", "-o", "json").exits(t, exitFine).out)
	job, queue, set := d.text("jobId"), d.text("queue"), d.text("jobSet")
	for _, from := range [][]string{{"--data", data}, {"--server", server}} {
		for _, c := range []struct {
			args []string
			want string
		}{
			{[]string{"get", "job", job[:len(job)-1]}, job},
			{[]string{"explain", job[:len(job)-1]}, job},
			{[]string{"explain", "queue", queue[:1]}, queue},
			{[]string{"explain", "job-set", queue + "/"}, queue + "/" + set},
			{[]string{"get", "decisions", "--queue", ""}, queue},
			{[]string{"get", "decisions", "--policy", ""}, d.text("policy")},
			{[]string{"get", "decisions", "--rule", ""}, d.text("rule")},
			{[]string{"get", "decisions", "--job", job[:len(job)-1]}, job},
			{[]string{"get", "jobs", "--job-set", ""}, set},
			{[]string{"get", "runs", "--node", ""}, "cluster-a-node-00"},
			{[]string{"top", "retries", "--category", "oo"}, "oom"},
			{[]string{"get", "jobs", "--state", "Fai"}, "Failed"},
			{[]string{"get", "policies", ""}, "infra"},
			{[]string{"history", "queue", ""}, queue},
			{[]string{"history", "po"}, "policy"},
		} {
			r := ctl(t, slices.Concat([]string{"__complete", c.args[0]}, from, c.args[1:])...)
			if !strings.Contains("\n"+r.out, "\n"+c.want) || strings.Contains(r.err, "rror") {
				t.Errorf("%v %v completes to %q %q, want %s", c.args, from, r.out, r.err, c.want)
			}
		}
	}
}

// TestWatchByServer: decisions that a server streams are those that the data directory has in the end, each once.
func TestWatchByServer(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	p, at := served(t, data, "--policies", testPolicies, "--feed", recordingFile("plain"))
	_, line, _ := strings.Cut(p.err.text(), "serving the page and the policy API")
	_, line, _ = strings.Cut(line, "address=")
	server := strings.Fields(line)[0]
	until(t, "there is a job database", func() bool { return ctl(t, "get", "jobs", "--server", server, "--limit", "1").code == exitFine })
	watched := start(t, "get", "decisions", "--server", server, "--watch", "-o", "json")
	until(t, "the first decisions are there", func() bool { return watched.out.text() != "" })
	at("feed", recordingFile("retried")).exits(t, exitFine)
	until(t, "all is decided", func() bool { return at("verify").code == exitFine })
	sorted := func(text string) string {
		lines := strings.Split(strings.TrimSpace(text), "\n")
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	until(t, "the stream has all decisions", func() bool {
		return sorted(watched.out.text()) == sorted(ctl(t, "get", "decisions", "--data", data, "-o", "json").exits(t, exitFine).out)
	})
	p.ends(t)
}

// TestPartitions: a process that was just started knows how far its partitions are, and says so also when it is asked by its
// data directory; without it, the job database says who decided them last.
func TestPartitions(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	ctl(t, "up", "--data", data, "--policies", testPolicies, "--feed", recordingFile("plain"), "--exit-when-drained").exits(t, exitFine)
	read := func() (all []query.Partition) {
		for line := range strings.Lines(ctl(t, "get", "partitions", "--data", data, "-o", "json").exits(t, exitFine).out) {
			var p query.Partition
			if err := json.Unmarshal([]byte(line), &p); err != nil {
				t.Fatal(err)
			}
			all = append(all, p)
		}
		return all
	}
	before := read()
	for i, p := range before {
		if p.Partition != i || p.Here || p.Owner == "" || p.Envelope == 0 || p.LagSeconds != nil {
			t.Errorf("%+v", p)
		}
	}
	p, _ := served(t, data, "--policies", testPolicies)
	until(t, "it decides all partitions, of which nothing is left to decide", func() bool {
		n := 0
		for _, p := range read() {
			if p.Here && p.Generation > 0 && p.LagSeconds != nil && *p.LagSeconds == 0 && p.Behind != nil && *p.Behind == 0 {
				n++
			}
		}
		return n == len(before) && n == 3
	})
	p.ends(t)
}

// TestServerFromEnvironment: a server that the environment names is asked only if the command line names nothing else.
func TestServerFromEnvironment(t *testing.T) {
	t.Parallel()
	data, away := drainedData(t), []string{"REFLOAT_SERVER=127.0.0.1:1"}
	for _, command := range [][]string{{"get", "jobs"}, {"get", "partitions"}, {"top", "retries"}, {"shadow", "report"}, {"verify"}} {
		ctlIn(t, away, append(command, "--data", data)...).exits(t, exitFine)
		ctlIn(t, away, command...).exits(t, exitEnvironment).prints(t, "no server answers at 127.0.0.1:1")
		ctl(t, append(command, "--data", data, "--server", "127.0.0.1:1")...).exits(t, exitUsage).prints(t, "two places to ask")
	}
	ctlIn(t, away, "verify", "--log", filepath.Join(data, "logs", "events"), "--decisions", filepath.Join(data, "logs", "decisions")).exits(t, exitFine)
	ctlIn(t, away, "whatif", "--set", "settings.globalMaxRetries=1", "--data", data).exits(t, exitFinding)
}

// groupCommands are questions about the first group of a data directory.
func groupCommands(t *testing.T, data string) [][]string {
	t.Helper()
	first, _, _ := strings.Cut(ctl(t, "get", "groups", "--data", data, "-o", "json").exits(t, exitFine).out, "\n")
	if first == "" {
		return [][]string{{"get", "group", "nosuchgroup"}, {"explain", "group", "nosuchgroup"}}
	}
	name := jsonLine(t, first).text("group")
	return [][]string{{"get", "group", name}, {"explain", "group", name}}
}

func address(t *testing.T, at string) string {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// differsFirst shows the first line in which two texts differ.
func differsFirst(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return fmt.Sprintf("line %d of %d and %d:\n%s\nfrom the server\n%s", i, len(a), len(b), strings.Join(a[min(i, len(a)):min(i+1, len(a))], ""), strings.Join(b[min(i, len(b)):min(i+1, len(b))], ""))
		}
	}
	return "the outputs are equal"
}

// TestServerPermission: the questions that come with bodies, the stream and the list of partitions need get_jobs, too.
func TestServerPermission(t *testing.T) {
	t.Parallel()
	data := drainedData(t)
	token := func(group string) api.Token {
		return api.Token{SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte("secret-"+group))), Groups: []string{group}}
	}
	auth := &api.Auth{Tokens: map[string]api.Token{"reader": token("readers"), "other": token("ops")}, Permissions: map[api.Verb][]string{api.GetJobs: {"readers"}, api.KillRetries: {"ops"}}}
	if err := auth.Check(); err != nil {
		t.Fatal(err)
	}
	server := answering(t, data, auth)
	for token, want := range map[string]int{"": http.StatusUnauthorized, "wrong": http.StatusUnauthorized, "secret-ops": http.StatusForbidden, "secret-readers": http.StatusOK} {
		for _, q := range []struct{ method, path, body string }{
			{http.MethodPost, "whatif", `{"set": ["settings.globalMaxRetries=1"]}`},
			{http.MethodPost, "verify", `{}`},
			{http.MethodGet, "partitions", ""},
		} {
			if status, body := send(t, q.method, server+"/refloat/v1/"+q.path, token, q.body); status != want {
				t.Errorf("%s with %q: %d %s, want %d", q.path, token, status, body, want)
			}
		}
		if want != http.StatusOK { // it would not end
			if status, body := send(t, http.MethodGet, server+"/refloat/v1/watch/decisions", token, ""); status != want {
				t.Errorf("the stream with %q: %d %s, want %d", token, status, body, want)
			}
		}
	}
	at := address(t, server)
	ctlIn(t, []string{"REFLOAT_TOKEN=secret-readers"}, "get", "jobs", "--server", at, "--limit", "1").exits(t, exitFine)
	if r := ctlIn(t, []string{"REFLOAT_TOKEN=secret-ops"}, "get", "jobs", "--server", at); r.code != exitEnvironment || !strings.Contains(r.err, "get_jobs") {
		t.Errorf("without the permission: exit code %d, %q", r.code, r.err)
	}
}

// TestDataOfTheEnvironment: REFLOAT_DATA stands for --data in every command that has it, and what the command line names wins.
func TestDataOfTheEnvironment(t *testing.T) {
	t.Parallel()
	data := drainedCopy(t)
	env := []string{"REFLOAT_DATA=" + data}
	last := jsonLine(t, ctlIn(t, env, "get", "decisions", "--last", "1", "-o", "json").exits(t, exitFine).out)
	for _, args := range []string{
		"history", "get policies", "get settings", "get resources", "get budgets", "get breakers", "get nodes", "shadow report", "get jobs", "get partitions",
		"explain " + last.text("jobId"), "top", "verify", "get queues",
	} {
		r := ctlIn(t, env, strings.Fields(args)...)
		if r.code == exitUsage || strings.Contains(r.err, "is required") {
			t.Errorf("REFLOAT_DATA=… refloatctl %s: %d, %s", args, r.code, r.err)
		}
	}
	ctlIn(t, env, "shadow", "report", "--log", app.Dir(data).Events(), "--policies", testPolicies).exits(t, exitFine)
	ctlIn(t, env, "history", "--server", "127.0.0.1:1").exits(t, exitEnvironment).prints(t, "no server answers at 127.0.0.1:1")
	ctl(t, "history", "--server", "127.0.0.1:1", "--data", data).exits(t, exitUsage).prints(t, "--server and --data name two places")
	ctl(t, "history").exits(t, exitUsage).prints(t, "--data DIR or --server HOST:PORT is required (or REFLOAT_DATA, REFLOAT_SERVER)")
	p, _ := served(t, data)
	ctlIn(t, env, "kill", "retries", "--all", "--reason", "x", "--dry-run").exits(t, exitFine)
	ctlIn(t, env, "retry", "nosuchjob", "--reason", "x", "--dry-run").exits(t, exitEnvironment).prints(t, "give the whole id")
	p.ends(t)
}

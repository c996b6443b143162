package main

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/api"
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
		{"explain", "job-set", queue + "/" + set},
		{"explain", "queue", "nosuchqueue"},
		{"top", "retries", "--by", "rule"},
		{"top", "retries", "--by", "node", "--limit", "2"},
		{"shadow", "report"},
		{"whatif", "--policies", policies},
		{"whatif", "--policies", policies, "--jobs", "0"},
		{"whatif", "--set", "settings.globalMaxRetries=1", "--jobs", "3"},
		{"whatif", "--set", "settings.nosuchfield=1"},
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
	if err := auth.Check(t.Context()); err != nil {
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

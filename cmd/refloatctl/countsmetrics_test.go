package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

var policySeries = regexp.MustCompile(`(?m)^refloat_policy_decisions_total\{([^}]*)\} (\d+)$`)

// TestCountsAgreeInOneDirectory: of one directory with decisions in shadow, superseded ones and those on a gang and on groups,
// the metrics of the process that decided it count what the page, the commands and the API count. Only whether a decision came
// too late is unknown to them.
func TestCountsAgreeInOneDirectory(t *testing.T) {
	t.Parallel()
	policies := filepath.Join(t.TempDir(), "policies")
	if err := os.CopyFS(policies, os.DirFS(testPolicies)); err != nil {
		t.Fatal(err)
	}
	own, _, _ := strings.Cut(groupPolicies, "---\nkind: RetrySettings")
	writeFile(t, policies, "groups.yaml", own+"---\nkind: Queue\nname: q\nretryPolicies: [lost]\n")
	data := letPass(t, "retried")
	p := start(t, "up", "--data", data, "--policies", policies, "--feed", recordingFile("plain"), "--feed", groupHistoryFile(t), "--listen", "127.0.0.1:0")
	address := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(p.err.await(t, "address="))[1]
	p.err.await(t, "feed complete")
	var c *decidedCounts
	var page string
	until(t, "everything is decided and in the job database", func() bool {
		c = countDecisions(t, data)
		_, page = get(t, address, "/metrics")
		return c.all.all() > 0 && sumOf(page, "refloat_decisions_total") == c.all.all() &&
			strings.Contains(ctl(t, "verify", "--data", data).out, "the same")
	})
	p.signal(t, syscall.SIGTERM)
	p.exits(t, exitFine)
	if c = countDecisions(t, data); c.all.retried == 0 || c.all.failed == 0 || c.all.shadow == 0 || c.all.superseded == 0 || c.by["code"]["GangRetry"] == nil || c.by["code"]["GroupRestart"] == nil {
		t.Fatalf("the history has %+v, %v", c.all, c.by["code"])
	}
	got := map[string]*tally{}
	for _, m := range policySeries.FindAllStringSubmatch(page, -1) {
		labels := map[string]string{}
		for _, l := range regexp.MustCompile(`(\w+)="([^"]*)"`).FindAllStringSubmatch(m[1], -1) {
			labels[l[1]] = l[2]
		}
		if got[labels["code"]] == nil {
			got[labels["code"]] = &tally{}
		}
		switch n := got[labels["code"]]; {
		case labels["shadow"] == "true":
			n.shadow += number(t, m[2])
		case labels["outcome"] == "Retry":
			n.retried += number(t, m[2])
		default:
			n.failed += number(t, m[2])
		}
	}
	for code, n := range c.by["code"] {
		if m := got[code]; m == nil || m.shadow != n.shadow || m.effect() != n.effect()+n.superseded || m.retried < n.retried || m.failed < n.failed {
			t.Errorf("the metrics count %+v of %s, the decisions are %+v", m, code, *n)
		}
	}
	if len(got) != len(c.by["code"]) {
		t.Errorf("the metrics have %d codes, the decisions %d", len(got), len(c.by["code"]))
	}
	server := answering(t, data, nil)
	site := showing(t, data)
	c.checkSummary(t, data, server, site)
	c.checkTops(t, data, server, site)
	c.checkQueues(t, data, server, site)
	c.checkPolicies(t, site)
	c.checkShadow(t, data, site)
}

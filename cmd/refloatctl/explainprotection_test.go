package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestExplainProtection: what is open, avoided and used up is told with its reason and its past, also without a server, and the commands
// that it prints run.
func TestExplainProtection(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, policies := filepath.Join(dir, "data"), filepath.Join(dir, "policies")
	writeFile(t, dir, "policies/p.yaml", `apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: p}
spec: {defaultAction: Retry, retryLimit: 3}
---
apiVersion: refloat.github.io/v1
kind: RetryBudget
metadata: {name: small}
spec: {ratio: 0, floor: 1, window: 1h, whenExhausted: Refuse}
---
apiVersion: armadaproject.io/v1
kind: RetrySettings
spec: {defaultPolicyName: p}
`)
	p, at := served(t, data, "--policies", policies, "--feed", recordingFile("plain"))
	until(t, "a decision is in the job database", func() bool {
		return strings.Contains(at("get", "decisions", "--code", "BudgetRefused", "-o", "json").out, "BudgetRefused")
	})
	until(t, "a job of the queue is in the job database", func() bool {
		return strings.Contains(at("get", "jobs", "--queue", "genomics", "--limit", "1", "-o", "json").out, "genomics")
	})
	at("open", "breaker", "--category", "infrastructure", "--all", "--for", "1h", "--reason", "INC-1").exits(t, exitFine)
	at("open", "breaker", "--category", "infrastructure", "--queue", "genomics", "--for", "1h", "--reason", "INC-2").exits(t, exitFine)
	at("close", "breaker", "--category", "infrastructure", "--queue", "genomics", "--reason", "mended").exits(t, exitFine)
	node := jsonLine(t, at("get", "runs", "--limit", "1", "-o", "json").out).text("node")
	at("avoid", "node", node, "--for", "1h", "--reason", "INC-3").exits(t, exitFine)

	told := at("explain", "breaker", "infrastructure").exits(t, exitFine).prints(t, "INC-1", "INC-2", "no longer: retries of queue genomics", "mended", "it holds")
	closing := ""
	for line := range strings.Lines(told.out) {
		if _, cmd, ok := strings.Cut(line, "refloatctl close "); ok {
			closing = "close " + strings.TrimSpace(cmd)
		}
	}
	if !strings.Contains(closing, "--all") {
		t.Fatalf("no command closes it: %s", told.out)
	}
	at("explain", "breaker", "infrastucture").exits(t, exitUsage).prints(t, "did you mean infrastructure?")
	at("explain", "node", node).exits(t, exitFine).prints(t, "Retries avoid node "+node, "INC-3", "trust node "+node)
	at("explain", "node", "nonode").exits(t, exitUsage).prints(t, "no node is called")
	at("explain", "budget", "small").exits(t, exitFine).prints(t, "refused", "BudgetExhausted small", "it would grant the next one at")
	at("explain", "budget", "smal").exits(t, exitEnvironment).prints(t, "small")
	at("close", "breaker", "--category", "infrastructure", "--all", "--reason", "it is back").exits(t, exitFine)
	stopped(t, p)
	ctl(t, "explain", "breaker", "infrastructure", "--data", data).exits(t, exitFine).prints(t, "none is open by an override", "it is back")
	if o := jsonLine(t, ctl(t, "explain", "node", node, "--data", data, "-o", "json").exits(t, exitFine).out); o.text("about") != "Node "+node {
		t.Errorf("%v", o)
	}
}

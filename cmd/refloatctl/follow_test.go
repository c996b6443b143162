package main

import (
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/refloat/refloat/internal/test/policysynctest"
)

// Policies that live in an Armada: they come into force here and are read-only, a
// queue's mode is ours, and an outage is shown.
func TestFollowArmada(t *testing.T) {
	t.Parallel()
	ctl(t, "up", "--data", t.TempDir(), "--policies", testPolicies, "--follow-armada", "127.0.0.1:1").exits(t, exitUsage).prints(t, "give only one source of policies")
	armada := policysynctest.Serve(t, "", nil)
	armada.Set("infra", policysynctest.Policy("infra", 2, "node"))
	armada.Set("fallback", policysynctest.Policy("fallback", 1, "node"))
	armada.Bind("ml", []string{"infra"})
	data := filepath.Join(t.TempDir(), "data")
	p, at := served(t, data, "--follow-armada", armada.Address, "--follow-armada-every", "1s")
	at("get", "policies").exits(t, exitFine).prints(t, "infra", "Queue ml", "Read-only here: policies, and which of them queues name, come from Armada at "+armada.Address, "was read at 20")
	at("history").exits(t, exitFine).prints(t, "armada "+armada.Address)
	at("delete", "policy", "infra").exits(t, exitEnvironment).prints(t, "come from Armada", "RetryPolicy infra would be deleted")
	queue := writeFile(t, t.TempDir(), "queue.yaml", "kind: Queue\nname: ml\nmode: Shadow\n---\nkind: RetrySettings\nspec: {globalMaxRetries: 5, defaultPolicyName: fallback}\n")
	at("apply", "-f", queue).exits(t, exitFine).prints(t, "Queue ml updated", "RetrySettings created")
	at("get", "queues").exits(t, exitFine).prints(t, `"mode":"Shadow"`, `"retryPolicies":["infra"]`)

	armada.Set("app", policysynctest.Policy("app", 1, "user", policysynctest.Mutate()))
	armada.Set("fallback", nil)
	armada.Set("web", policysynctest.Policy("web", 1, "user"))
	armada.Bind("ml", []string{"web", "infra"})
	until(t, "a change comes", func() bool {
		return strings.Contains(at("get", "queues").out, `"retryPolicies":["web","infra"]`)
	})
	at("get", "queues").prints(t, `"mode":"Shadow"`)
	at("get", "policies").prints(t, `Cannot be used here: RetryPolicy "app" is ignored`, "Armada has no retry policy fallback, which our settings name as the default")
	armada.Fail(status.Error(codes.Unavailable, "out for lunch"))
	until(t, "an outage is shown", func() bool {
		return strings.Contains(at("get", "policies").out, "out for lunch")
	})
	at("get", "policies").exits(t, exitFine).prints(t, "has been unreadable since 20", "stay in force", "web")
	p.ends(t)

	// After a restart during the outage, the policies read before are still in force.
	p, at = served(t, data, "--follow-armada", armada.Address)
	at("get", "policies").exits(t, exitFine).prints(t, "when this process started", "out for lunch", "web")
	p.ends(t)
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestWatchOverREST: decisions come as they are made, one object a line.
func TestWatchOverREST(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	p, at := served(t, data, "--policies", testPolicies, "--feed", recordingFile("plain"), "--pace", "2x")
	_, address, _ := strings.Cut(p.err.await(t, "serving the page and the policy API"), "address=")
	server := strings.Fields(address)[0]
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+server+"/refloat/v1/watch/decisions", nil)
	if err != nil {
		t.Fatal(err)
	}
	var resp *http.Response
	until(t, "there is a job database", func() bool {
		if resp, err = http.DefaultClient.Do(r); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusServiceUnavailable {
			return true
		}
		resp.Body.Close()
		return false
	})
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for n := range 2 {
		if !lines.Scan() {
			t.Fatalf("the stream ended after %d decisions: %v", n, lines.Err())
		}
		var line struct{ Result struct{ JobID, Code string } }
		if err := json.Unmarshal(bytes.TrimSpace(lines.Bytes()), &line); err != nil || line.Result.JobID == "" || line.Result.Code == "" {
			t.Fatalf("%s: %v\n%s", lines.Text(), err, p.err.text())
		}
	}
	at("get", "policies").exits(t, exitFine) // others are served meanwhile
	p.ends(t)
}

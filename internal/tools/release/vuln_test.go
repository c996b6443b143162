package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestVulnDatabase: make vuln takes a directory or a URL, and without either the Go team's database.
func TestVulnDatabase(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{
		"":                          "govulncheck ./cmd/...",
		"/a/db":                     "govulncheck -db file:///a/db ./cmd/...",
		"db":                        "govulncheck -db file://" + root + "/db ./cmd/...",
		"https://vulns.example.org": "govulncheck -db https://vulns.example.org ./cmd/...",
	} {
		out, err := exec.Command("make", "-n", "-C", root, "vuln", "VULNDB="+given).CombinedOutput()
		if text := string(out); err != nil || !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
			t.Errorf("VULNDB=%s: %v\n%s, want %s", given, err, text, want)
		}
	}
}

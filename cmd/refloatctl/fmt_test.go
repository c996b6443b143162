package main

import (
	"os"
	"testing"
)

// TestFmt: a file is rewritten once, and with --check only named.
func TestFmt(t *testing.T) {
	t.Parallel()
	const crooked = "kind: RetrySettings # these\nspec:\n    globalMaxRetries:  5\n"
	path := writeFile(t, t.TempDir(), "p.yaml", crooked)
	now := func() string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	inProcess(t, "fmt", "--check", path).exits(t, exitFinding).prints(t, "p.yaml")
	if now() != crooked {
		t.Errorf("--check wrote %q", now())
	}
	inProcess(t, "fmt", path).exits(t, exitFine).prints(t, "p.yaml")
	if want := "kind: RetrySettings # these\nspec:\n  globalMaxRetries: 5\n"; now() != want {
		t.Errorf("%q, want %q", now(), want)
	}
	if out := inProcess(t, "fmt", path, "--check").exits(t, exitFine).out; out != "" {
		t.Errorf("again: %q", out)
	}
	inProcess(t, "fmt", writeFile(t, t.TempDir(), "bad.yaml", "a: [")).exits(t, exitEnvironment)
	ctl(t, "fmt").exits(t, exitUsage)
}

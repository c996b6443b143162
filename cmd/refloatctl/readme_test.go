package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestReadme: each command for a first policy in README.md, as it stands there, ends with exit code 0.
func TestReadme(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIP: -short")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Your first policy\n")
	section, _, _ = strings.Cut(section, "\n## ")
	script := "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1)
	if len(blocks) != 3 {
		t.Fatalf("README.md has %d blocks of commands for a first policy", len(blocks))
	}
	for _, b := range blocks {
		script += b[1]
	}
	// People take longer to type the next command than up takes to start; on a busy machine a script does not.
	const up = "bin/refloatctl up --data .refloat-first &\n"
	if strings.Count(script, up) != 1 {
		t.Fatalf("README.md does not start up once: %s", script)
	}
	script = strings.Replace(script, up, up+"until [ -s .refloat-first/api.address ]; do kill -0 $!; done\n", 1)
	dir := t.TempDir()
	for name, to := range map[string]string{"bin": filepath.Dir(binaryPath(t)), "testdata": filepath.Join(root, "testdata")} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-ec", script)
	cmd.Dir, cmd.Env = dir, environ("REFLOAT_POLICIES_SETTLE=0s")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

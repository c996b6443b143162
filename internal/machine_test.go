package internal_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// machineDir finds the directory of somebody's machine: a home, or where a project is checked out on it. A home of
// "user" is nobody's.
var machineDir = regexp.MustCompile(`(?m)(?:^|[^\w./}\])-])(/(?:root|work)/|/(?:home|Users)/\w+)`)

// machineDirs returns the directories of developers' machines that a file names.
func machineDirs(content []byte) (found []string) {
	if bytes.IndexByte(content, 0) >= 0 {
		return nil // no text
	}
	for _, m := range machineDir.FindAllSubmatch(content, -1) {
		if dir := string(m[1]); dir != "/home/user" {
			found = append(found, dir)
		}
	}
	return found
}

// TestNoMachineIsNamed: no file of the repository names a directory that exists on one developer's machine only.
func TestNoMachineIsNamed(t *testing.T) {
	t.Parallel()
	files := 0
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel("..", name)
		if d.IsDir() {
			if d.Name() == ".git" || rel == "bin" || rel == "dist" || strings.HasPrefix(rel, ".refloat-") {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || strings.HasSuffix(rel, "machine_test.go") {
			return nil
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		files++
		for _, dir := range machineDirs(content) {
			t.Errorf("%s names %s, which is on no other machine", rel, dir)
		}
		return nil
	})
	if err != nil || files < 500 {
		t.Fatalf("read %d files, want the whole repository: %v", files, err)
	}
}

func TestMachineDirs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		`dir := "/work/shared/recordings"`: 1, "from `/work/shared/oracles`": 1, "cd /home/ann/refloat": 1, "/Users/bob": 1, "x=/root/go\n/work/x": 2,
		"--key=/home/user/.ssh": 0, `"$out/root/bin/"`: 0, "/out/root/ /": 0, "https://host/work/": 0, "internal/work/x": 0, "../home/x": 0, "/tmp/plain": 0, "\x00 /root/": 0,
	} {
		if got := machineDirs([]byte(text)); len(got) != want {
			t.Errorf("machineDirs(%q) = %q, want %d", text, got, want)
		}
	}
}

// Package planted plants bugs into copies of the source. Tests of the broken code must fail: those that pass hold nothing.
package planted

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Patch is a file, a string that occurs in it exactly once, and what takes its place.
type Patch [3]string

// Bug is what patches break.
type Bug struct {
	Dir     string // of the files, from the root of the repository
	What    string
	Patches []Patch
}

// Fits fails the test unless each patch finds its place, so that no bug goes stale between the runs that compile it.
func (b *Bug) Fits(t testing.TB) {
	t.Helper()
	b.source(t, Root(t))
}

// Has fails the test unless a package, such as ./internal/api, has a test whose name the pattern matches whole: a bug whose test was
// renamed would be caught by nobody.
func Has(t testing.TB, tests, pattern string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(Root(t), filepath.FromSlash(tests), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`(?m)^func (?:` + pattern + `)\(\w+ \*testing\.[TF]\)`)
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if named.Match(source) {
			return
		}
	}
	t.Errorf("%s has no test %s", tests, pattern)
}

// Root is the root of the repository.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the working directory")
		}
		dir = filepath.Dir(dir)
	}
}

// source is the source of the files that the bug changes.
func (b *Bug) source(t testing.TB, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, p := range b.Patches {
		file, is, becomes := filepath.Join(root, filepath.FromSlash(b.Dir), filepath.FromSlash(p[0])), p[1], p[2]
		source, ok := files[file]
		if !ok {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			source = string(raw)
		}
		if n := strings.Count(source, is); n != 1 {
			t.Fatalf("%s: %q stands there %d times, want once: the code has changed, so the planted bug %q must", p[0], is, n, b.What)
		}
		files[file] = strings.Replace(source, is, becomes, 1)
	}
	return files
}

// Program builds the tests of a package, such as ./internal/api, over a copy of the source with the bug and without some files,
// given from the root of the repository.
func (b *Bug) Program(t testing.TB, tests string, without ...string) string {
	t.Helper()
	root, dir := Root(t), t.TempDir()
	replace := map[string]string{}
	for file, source := range b.source(t, root) {
		changed := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(changed, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[file] = changed
	}
	for _, file := range without {
		replace[filepath.Join(root, filepath.FromSlash(file))] = ""
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	list, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "planted.test")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", list, "-o", program, tests)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%q does not compile: %v\n%s", b.What, err, out)
	}
	return program
}

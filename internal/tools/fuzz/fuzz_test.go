package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestList: functions of both packages of a directory, and nothing that go test
// would not fuzz.
func TestList(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":               "module m\n",
		"a/a_test.go":          "package a\nimport \"testing\"\nfunc FuzzA(f *testing.F) {}\nfunc FuzzHelper(s string) {}\nfunc TestX(t *testing.T) {}\n",
		"a/b_test.go":          "package a_test\nimport \"testing\"\nfunc FuzzB(f *testing.F) {}\ntype x int\nfunc (x) FuzzMethod(f *testing.F) {}\n",
		"a/c_test.go":          "//go:build never\npackage a\nimport \"testing\"\nfunc FuzzNever(f *testing.F) {}\n",
		"a/notest.go":          "package a\nimport \"testing\"\nfunc FuzzProduct(f *testing.F) {}\n",
		"a/testdata/d_test.go": "package a\nimport \"testing\"\nfunc FuzzData(f *testing.F) {}\n",
		"other/go.mod":         "module o\n",
		"other/o_test.go":      "package o\nimport \"testing\"\nfunc FuzzOther(f *testing.F) {}\n",
		"b/b_test.go":          "package b\nimport \"testing\"\nfunc TestOnly(t *testing.T) {}\n",
	} {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := list(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].dir != "a" || !slices.Equal(got[0].functions, []string{"FuzzA", "FuzzB"}) {
		t.Errorf("list = %v", got)
	}
}

// TestLate: only a deadline without a failing input is late.
func TestLate(t *testing.T) {
	const deadline = "--- FAIL: FuzzA (10.01s)\n    context deadline exceeded\n"
	if !late([]byte(deadline)) || late([]byte(deadline+"    Failing input written to testdata\n")) || late([]byte("--- FAIL: FuzzA\n")) {
		t.Error("late is not told from failed")
	}
}

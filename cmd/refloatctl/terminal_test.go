package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// hostile moves the cursor, in 7 and in 8 bits, reverses text and hides some.
const hostile = "a\x1b[2Jb\u009b2Jc\u202ed\u200b"

func raw(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool {
		return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r))
	})
}

// Whatever strangers wrote, neither errors nor JSON send it to the terminal as it is.
func TestTerminalSafety(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, hostile+".yaml")
	if err := os.WriteFile(file, []byte("kind: Queue\nname: [1]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"lint", file},
		{"lint", "-o", "json", file},
		{"lint", filepath.Join(dir, "none"+hostile)},
		{hostile},
		{"get", hostile},
		{"explain", hostile, "--data", dir},
		{"replay", "--log", filepath.Join(dir, hostile), "--policies", file},
	} {
		r := ctl(t, args...)
		if r.code == 0 || raw(r.out) || raw(r.err) {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, r.code, r.out, r.err)
		}
	}
}

// One long cell does not widen every row.
func TestTableIsBounded(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	table := newTable(&out, "JOB", "QUEUE", "WHY")
	long := strings.Repeat("é", 70_000)
	table.row(long, "ml", long)
	for range 1000 {
		table.row("j", "ml", "ok")
	}
	if err := table.flush(); err != nil {
		t.Fatal(err)
	}
	if out.Len() > 1000*200+2*len(long) || !strings.Contains(out.String(), "…") {
		t.Errorf("1000 rows and a long one take %d bytes", out.Len())
	}
}

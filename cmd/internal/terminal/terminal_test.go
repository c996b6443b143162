package terminal_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/refloat/refloat/cmd/internal/terminal"
)

func TestSafe(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"job-1\tok\nnext":           "job-1\tok\nnext",
		"naïve 例 🚀":                 "naïve 例 🚀",
		"a\x1b[2Jb":                 `a\u001b[2Jb`,
		"a\u009b2Jb":                `a\u009b2Jb`,
		"a\u202egpj.exe":            `a\u202egpj.exe`,
		"pay\u200bpal \ufeff\u2066": `pay\u200bpal \ufeff\u2066`,
		"a\rb\u2028c":               `a\u000db\u2028c`,
		"tag \U000e0041":            `tag \udb40\udc41`,
		"a\xffb":                    `a\ufffdb`,
		"":                          "",
	} {
		if got := terminal.Safe(text); got != want {
			t.Errorf("Safe(%q) = %q, want %q", text, got, want)
		}
	}
}

// What is written is safe wherever it is cut, JSON says the same as before, and our headings stay.
func TestWriter(t *testing.T) {
	t.Parallel()
	value := map[string]string{"id": "a\u202eb\u009b\u200b\U000e0041 é\x1b[1m"}
	line, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	for size := 1; size < 8; size++ {
		name := filepath.Join(t.TempDir(), "out")
		file, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		w := terminal.NewWriter(file)
		for rest := line; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			if n, err := w.Write(rest[:min(size, len(rest))]); err != nil || n != min(size, len(rest)) {
				t.Fatalf("Write: %d, %v", n, err)
			}
		}
		if _, err := w.Write([]byte("\n" + terminal.Bold + "id\x1b" + terminal.Plain)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		want := `{"id":"a\u202eb\u009b\u200b\udb40\udc41 é\u001b[1m"}` + "\n" + terminal.Bold + `id\u001b` + terminal.Plain
		if string(got) != want {
			t.Errorf("in pieces of %d: %q, want %q", size, got, want)
		}
		var back map[string]string
		if err := json.Unmarshal(got[:len(want)-len("\n"+terminal.Bold+`id\u001b`+terminal.Plain)], &back); err != nil || back["id"] != value["id"] {
			t.Errorf("JSON came back as %q, %v", back, err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

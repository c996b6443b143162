package scheduling

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocs: every function, type and test that SENTENCES.md names exists.
func TestDocs(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("SENTENCES.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	names := regexp.MustCompile("`([A-Za-z]+\\.)?([A-Za-z]+)`").FindAllStringSubmatch(string(doc), -1)
	if len(names) < 60 {
		t.Fatalf("the table has %d names", len(names))
	}
	for _, name := range names {
		if strings.HasPrefix(name[2], "gang") || name[2] == "isFairSharePreemptible" {
			continue // Armada's names
		}
		declared := regexp.MustCompile(`(?m)^(func (\([^)]*\) )?|type |\t(\w+, )*)` + name[2] + `\b`)
		if !declared.MatchString(code.String()) {
			t.Errorf("SENTENCES.md names %s, which does not exist", name[0])
		}
	}
}

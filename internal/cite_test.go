package internal_test

import (
	"go/ast"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pages are the pages that comments may cite, by name and by path in the module, with
// their sections: numbers of headings, and of the items of a list below its heading. A page
// outside docs/ is known by its path only.
type pages map[string]map[string]bool

var (
	heading = regexp.MustCompile(`^#+ (?:(\d+(?:\.\d+)*)\.? )?`)
	item    = regexp.MustCompile(`^(\d+)\. `)
	// cited is a page, and the sections that follow its name.
	cited   = regexp.MustCompile(`((?:[A-Za-z0-9_.-]+/)*[A-Za-z0-9_-]+\.md)\b((?:(?:,? and|,? to|,)? \d+(?:\.\d+)*\b)*)`)
	section = regexp.MustCompile(`\d+(?:\.\d+)*`)
	record  = regexp.MustCompile(`\bADR (\d+)\b`)
	// namedTest is a function of a test file.
	namedTest = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9]*)`")
	// foreign are pages that the code was written from, and that are in no repository.
	foreign = regexp.MustCompile(`\b(?:GROUPS|PROTOCOL|SEMANTICS)(?:\.md\b| \d)`)
)

// readPages reads the pages of the module under root.
func readPages(t *testing.T, root string) pages {
	t.Helper()
	all := pages{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, name)
		if d.IsDir() && rel != "." && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if filepath.Ext(name) != ".md" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		all[rel] = sections(string(text))
		if strings.HasPrefix(rel, "docs/") || !strings.Contains(rel, "/") {
			all[filepath.Base(name)] = all[rel]
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func sections(text string) map[string]bool {
	found, above, code := map[string]bool{}, "", false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "```"):
			code = !code
		case code:
		case heading.MatchString(line):
			above = heading.FindStringSubmatch(line)[1]
			found[above] = true
		case item.MatchString(line):
			found[strings.TrimPrefix(above+"."+item.FindStringSubmatch(line)[1], ".")] = true
		}
	}
	return found
}

// inspectCites holds that comments cite only pages of this repository, and sections that
// they have.
func (h *house) inspectCites(f *file) {
	for _, group := range f.Comments {
		text := strings.Join(strings.Fields(group.Text()), " ")
		if name := foreign.FindString(text); name != "" {
			h.report(group, "a comment cites %s, a page that is not in the repository", name)
		}
		for _, m := range cited.FindAllStringSubmatch(text, -1) {
			name := strings.TrimLeft(m[1], "./")
			has, ok := h.pages[name]
			if beside, isBeside := h.pages[f.dir()+"/"+name]; !ok && isBeside {
				has, ok = beside, true
			}
			if !ok {
				h.report(group, "a comment cites %s, which does not exist", m[1])
				continue
			}
			for _, s := range section.FindAllString(m[2], -1) {
				if !has[s] {
					h.report(group, "a comment cites %s %s: the page has no such section", m[1], s)
				}
			}
		}
		for _, m := range record.FindAllStringSubmatch(text, -1) {
			if !h.pages.hasRecord(m[1]) {
				h.report(group, "a comment cites ADR %s, which does not exist", m[1])
			}
		}
	}
}

// hasRecord reports whether there is an ADR of that number.
func (p pages) hasRecord(number string) bool {
	prefix := "docs/adr/" + strings.Repeat("0", max(0, 4-len(number))) + number + "-"
	for name := range p {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// TestNamedTestsExist: every test, fuzz function and benchmark that a page of the reference or
// of the internals names exists.
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	h := house{fset: token.NewFileSet()}
	h.read(t, "..")
	declared := map[string]bool{}
	for _, f := range h.files {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.test && fn.Recv == nil {
				declared[fn.Name.Name] = true
			}
		}
	}
	for _, dir := range []string{"reference", "internals"} {
		files, err := filepath.Glob(filepath.Join("..", "docs", dir, "*.md"))
		if err != nil || len(files) == 0 {
			t.Fatalf("docs/%s has %d pages, %v", dir, len(files), err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range namedTest.FindAllStringSubmatch(string(text), -1) {
				if !declared[m[1]] {
					t.Errorf("%s names %s, which does not exist", filepath.ToSlash(name), m[1])
				}
			}
		}
	}
}

// TestSectionsNameTheirTests: each section of semantics.md that is not divided further names a
// test that proves it.
func TestSectionsNameTheirTests(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/reference/semantics.md")
	if err != nil {
		t.Fatal(err)
	}
	numbered := regexp.MustCompile(`(?m)^##+ (\d+(?:\.\d+)*)`)
	places := numbered.FindAllStringSubmatchIndex(string(page), -1)
	if len(places) < 25 {
		t.Fatalf("semantics.md has %d sections", len(places))
	}
	for i, at := range places {
		end, number := len(page), string(page[at[2]:at[3]])
		divided := false
		if i+1 < len(places) {
			end = places[i+1][0]
			divided = strings.HasPrefix(string(page[places[i+1][2]:places[i+1][3]]), number+".")
		}
		_, tests, found := strings.Cut(string(page[at[0]:end]), "\n*Tests")
		if !divided && (!found || !namedTest.MatchString(tests)) {
			t.Errorf("semantics.md %s names no test", number)
		}
	}
}

// TestVersionTable: the table of versions in semantics.md has the differences that the code
// has, each under its version.
func TestVersionTable(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/reference/semantics.md")
	if err != nil {
		t.Fatal(err)
	}
	table, version := map[string]string{}, ""
	for _, row := range regexp.MustCompile("(?m)^\\| (\\d*) *\\| [^|]+ \\| `(since\\w+)` \\|$").FindAllStringSubmatch(string(page), -1) {
		if row[1] != "" {
			version = row[1]
		}
		table[row[2]] = version
	}
	code, err := os.ReadFile("evaluator/semantics.go")
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]string{}
	for _, c := range regexp.MustCompile(`(?m)^\t(since\w+) += (\d+)$`).FindAllStringSubmatch(string(code), -1) {
		has[c[1]] = c[2]
	}
	if len(has) < 9 || !maps.Equal(table, has) {
		t.Errorf("semantics.md has %v, the code %v", table, has)
	}
}

package internal_test

import (
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestPaths: every function that ARCHITECTURE.md names on the paths of one failure and of a
// group's restart exists.
func TestPaths(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, paths, ok := strings.Cut(string(doc), "## The path of one failure\n")
	if !ok {
		t.Fatal("ARCHITECTURE.md has no section on the path of one failure")
	}
	one, rest, ok := strings.Cut(paths, "\n## The path of a group's restart to Armada's tables\n")
	if !ok {
		t.Fatal("ARCHITECTURE.md has no section on the path of a group's restart")
	}
	restart, _, _ := strings.Cut(rest, "\n## ")
	h := house{fset: token.NewFileSet()}
	h.read(t, "..")
	declared := map[string]bool{}
	for _, f := range h.files {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && !f.test {
				declared[qualified(f.Name.Name, fn)] = true
			}
		}
	}
	for _, section := range []string{one, restart} {
		names := regexp.MustCompile("`([a-z]+\\.[A-Za-z.]+)`").FindAllStringSubmatch(section, -1)
		if len(names) < 10 {
			t.Fatalf("a section names %d functions:\n%s", len(names), section)
		}
		for _, name := range names {
			if !declared[name[1]] {
				t.Errorf("ARCHITECTURE.md: there is no function %s on that path any more", name[1])
			}
		}
	}
}

// qualified is package.Func, or package.Type.Method.
func qualified(pkg string, fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return pkg + "." + fn.Name.Name
	}
	receiver := fn.Recv.List[0].Type
	if p, ok := receiver.(*ast.StarExpr); ok {
		receiver = p.X
	}
	id, ok := receiver.(*ast.Ident)
	if !ok {
		return ""
	}
	return pkg + "." + id.Name + "." + fn.Name.Name
}

package main

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// module is the path of the module whose functions run.
const module = "github.com/refloat/refloat"

// fuzzed is a package and its Fuzz functions.
type fuzzed struct {
	dir       string // from the root
	functions []string
}

// list reads the Fuzz functions from the sources: to ask each test binary would
// build and link all of them, those without such functions too.
func list(root string) ([]fuzzed, error) {
	var all []fuzzed
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name != root && (strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_") || d.Name() == "testdata" || isModule(name)) {
			return filepath.SkipDir
		}
		functions, err := inDir(name)
		if err != nil || len(functions) == 0 {
			return err
		}
		dir, err := filepath.Rel(root, name)
		all = append(all, fuzzed{filepath.ToSlash(dir), functions})
		return err
	})
	return all, err
}

func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func inDir(dir string) (functions []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		built, err := build.Default.MatchFile(filepath.Split(name))
		if err != nil {
			return nil, err
		}
		if !built {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("read Fuzz functions: %w", err)
		}
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Fuzz") && takesF(fn) {
				functions = append(functions, fn.Name.Name)
			}
		}
	}
	return functions, nil
}

// takesF says whether the function has the one parameter *testing.F.
func takesF(fn *ast.FuncDecl) bool {
	params := fn.Type.Params.List
	if len(params) != 1 || len(params[0].Names) != 1 {
		return false
	}
	star, ok := params[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	sel, ok := star.X.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "F"
}

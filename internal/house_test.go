package internal_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/refloat/refloat"

// layers are the packages from the ground up. A package may import those of the
// lines above its own, never one beside it or below it. A new package takes a
// place here, argued in its commit.
var layers = []string{
	"events/pb internal/api/jobs/pb internal/api/pb internal/checkpoint internal/dirlock internal/eventlog internal/jobdb/pgerror internal/notify internal/plural internal/policy internal/schedulerdb/pb internal/schedulerdb/schema internal/simulate/scheduling internal/suggest",
	"events internal/budget internal/checkpoint/storage internal/eventlog/filelog internal/eventlog/pulsarlog internal/eventlog/recording internal/eventlog/topiccopy internal/placement internal/policy/policyfile internal/protection",
	"internal/authoring/lint internal/chain internal/policylog internal/group internal/schedulerdb",
	"internal/api internal/chain/follow internal/convert internal/jobdb internal/projection internal/schedulerdb/pgstore",
	"internal/armada/policysync internal/doctor internal/evaluator internal/jobdb/table internal/sink",
	"internal/audit internal/jobdb/postgres internal/jobdb/sqlite",
	"internal/archive internal/armada/writer internal/audit/report internal/audit/shadow internal/audit/whatif internal/audit/whynot internal/authoring/diff internal/authoring/suite",
	"internal/armada/controlplane internal/query internal/simulate",
	"internal/api/jobs internal/simulate/history internal/simulate/report internal/simulate/trace internal/web",
	"internal/app internal/armada/cutover",
	"cmd/internal/settings cmd/internal/terminal cmd/internal/version",
	"cmd/internal/apiflags cmd/internal/pulsarflags cmd/internal/export cmd/internal/show",
	"cmd/internal/text",
	"cmd/internal/program",
	"cmd/evaluator cmd/ingester cmd/refloatctl",
}

// wings are what only programs, tests and the wing itself may import: the product
// works without them.
var wings = []string{"internal/convert", "internal/simulate"}

// forTests is what only tests import, and what lies under it. It may import
// anything but programs.
var forTests = []string{"internal/test", "internal/convert/conformance", "internal/simulate/schedulingmodel"}

// drivers says which packages may import a module of others: no module spreads
// further than the packages that it is for. What lies under forTests, and tests,
// may import any.
var drivers = map[string]string{
	"github.com/KimMachineGun/automemlimit":  "internal/app",
	"github.com/agnivade/levenshtein":        "internal/suggest",
	"github.com/apache/pulsar-client-go":     "internal/eventlog/pulsarlog internal/placement internal/doctor internal/armada/cutover",
	"github.com/cenkalti/backoff/v5":         "internal/app internal/notify",
	"github.com/cockroachdb/pebble/v2":       "internal/archive internal/eventlog/filelog internal/projection internal/app cmd/refloatctl",
	"github.com/coreos/go-oidc/v3":           "internal/api cmd/refloatctl",
	"github.com/dustin/go-humanize":          "internal/app",
	"github.com/grpc-ecosystem/grpc-gateway": "internal/api",
	"github.com/jackc/pgx/v5":                "internal/jobdb internal/armada internal/doctor internal/app internal/schedulerdb",
	"github.com/klauspost/compress":          "internal/eventlog/filelog internal/policylog",
	"github.com/mattn/go-isatty":             "cmd/refloatctl",
	"github.com/minio/minio-go/v7":           "internal/checkpoint/storage",
	"github.com/parquet-go/parquet-go":       "cmd/internal/export",
	"github.com/prometheus/client_golang":    "internal/app internal/eventlog/pulsarlog",
	"github.com/spf13/cobra":                 "cmd",
	"github.com/spf13/pflag":                 "cmd",
	"github.com/tidwall/btree":               "internal/projection",
	"go.yaml.in/yaml/v4":                     "internal/authoring internal/convert internal/policy internal/simulate cmd",
	"golang.org/x/crypto":                    "internal/api",
	"golang.org/x/sync":                      "internal/audit internal/sink internal/app cmd",
	"golang.org/x/term":                      "cmd/internal/show",
	"golang.org/x/oauth2":                    "internal/api cmd/refloatctl",
	"golang.org/x/time":                      "internal/api internal/app",
	"google.golang.org/genproto":             "internal/api",
	"gonum.org/v1/gonum":                     "internal/simulate",
	"google.golang.org/grpc":                 "internal/api internal/armada/policysync cmd/refloatctl",
	"google.golang.org/protobuf":             "events internal cmd",
	"k8s.io/api":                             "internal/convert",
	"k8s.io/apimachinery":                    "internal/convert internal/schedulerdb internal/simulate",
	"github.com/ncruces/go-sqlite3":          "internal/jobdb/sqlite",
}

// never holds what the layers would allow: a package, and what it must not import.
var never = [][2]string{{"internal/projection", "internal/policy/policyfile"}}

// pure files see no clock, no chance, no I/O, no goroutine and no map order;
// shell files are the exceptions among them.
var (
	pure = []string{
		"events/*.go", "internal/chain/*.go", "internal/convert/*.go", "internal/simulate/scheduling/*.go", "internal/policy/*.go", "internal/policy/policyfile/*.go", "internal/projection/*.go", "internal/protection/*.go", "internal/budget/*.go",
		"internal/evaluator/step.go", "internal/evaluator/facts.go", "internal/evaluator/semantics.go", "internal/evaluator/delay.go", "internal/evaluator/budget.go", "internal/evaluator/groups.go", "internal/evaluator/grouporder.go", "internal/evaluator/record.go", "internal/evaluator/replay.go", "internal/evaluator/partial.go", "internal/sink/ops.go",
		"internal/schedulerdb/*.go", "internal/schedulerdb/pgstore/change.go",
	}
	shell = []string{"internal/policy/policyfile/load.go", "internal/projection/store.go", "internal/projection/damage.go", "internal/projection/queue.go", "internal/projection/scrub.go", "internal/projection/unwritable.go"}
)

var (
	// testParts may read the environment: they find what this machine has.
	testParts = []string{"internal/test/pulsartest/", "internal/test/pgtest/", "internal/test/armadabox/"}
	// programs outside cmd/ are not installed: they have flags, signals and the clock too.
	programsAside = []string{"internal/test/chaos/"}
	ownClock      = []string{"cmd/", "internal/test/chaos/", "internal/eventlog/filelog/", "internal/eventlog/pulsarlog/"}
	badNames      = []string{"base", "common", "helpers", "models", "shared", "types", "util", "utils"}
	notPure       = []string{"context", "crypto/rand", "database/sql", "io/fs", "log", "math/rand", "net", "os", "runtime", "sync", "syscall"}
	cmdOnly       = []string{"flag", "os/signal", "github.com/spf13/cobra", "github.com/spf13/pflag"}
	noMocks       = []string{"github.com/golang/mock", "github.com/stretchr/testify", "go.uber.org/mock"}
	mapOrder      = []string{"maps.All", "maps.Keys", "maps.Values", "(reflect.Value).MapKeys", "(reflect.Value).MapRange"}
	constantsOf   = []string{"errors.New", "regexp.MustCompile", "hash/crc32.MakeTable", "strings.NewReplacer"}

	clock       = []string{"time.Now", "time.Since", "time.Until"}
	waiting     = []string{"time.After", "time.AfterFunc", "time.NewTicker", "time.NewTimer", "time.Tick", "time.Local", "time.LoadLocation"}
	environment = []string{"os.Args", "os.Environ", "os.ExpandEnv", "os.Getenv", "os.LookupEnv"}
)

const maxLines = 500

// TestHouse holds the conventions of this repository that a program can check.
//
// What a file names is read from its syntax; dot imports are forbidden, so a
// qualified name cannot hide. Map ranges, floats and writes to package
// variables in pure files are seen by go/types over the compiler's export data.
// Not seen: a float or a map inside an interface, a package variable changed
// through a pointer or a method, and what a called package does.
func TestHouse(t *testing.T) {
	t.Parallel()
	h := house{fset: token.NewFileSet(), exports: exports(t, "./..."), pages: readPages(t, "..")}
	h.read(t, "..")
	if len(h.files) < 10 {
		t.Fatalf("read %d files, want the whole module", len(h.files))
	}
	for _, finding := range h.inspect() {
		t.Error(finding)
	}
}

type house struct {
	fset    *token.FileSet
	exports map[string]string // import path → file of export data
	pages   pages             // that comments may cite
	files   []*file
	found   []string
}

type file struct {
	*ast.File
	path      string // in the module, with slashes
	test      bool
	generated bool
	built     bool // on this machine
}

func (f *file) dir() string { return path.Dir(f.path) }

func (f *file) pure() bool {
	in := func(patterns []string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { ok, _ := path.Match(p, f.path); return ok })
	}
	return !f.test && !f.generated && in(pure) && !in(shell)
}

// exports asks the go command for the export data of packages and all they import.
func exports(t *testing.T, patterns ...string) map[string]string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-e", "-deps", "-export", "-f", "{{.ImportPath}} {{.Export}}"}, patterns...)...)
	cmd.Dir = ".."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	m := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if p, e, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			m[p] = e
		}
	}
	return m
}

// read adds every Go file of the module under root.
func (h *house) read(t *testing.T, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, name)
		if d.IsDir() {
			_, err := os.Stat(filepath.Join(name, "go.mod"))
			if rel != "." && (err == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		built, err := build.Default.MatchFile(filepath.Split(name))
		if err != nil {
			return err
		}
		return h.add(filepath.ToSlash(rel), src, built)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (h *house) add(name string, src []byte, built bool) error {
	f, err := parser.ParseFile(h.fset, name, src, parser.ParseComments)
	if err != nil {
		return err
	}
	h.files = append(h.files, &file{f, name, strings.HasSuffix(name, "_test.go"), ast.IsGenerated(f), built})
	return nil
}

func (h *house) inspect() []string {
	dirs := map[string][]*file{}
	for _, f := range h.files {
		dirs[f.dir()] = append(dirs[f.dir()], f)
		h.inspectImports(f)
		h.inspectCites(f)
		if !f.generated {
			h.inspectFile(f)
		}
		if f.pure() {
			h.inspectPure(f)
		}
	}
	for dir, files := range dirs {
		h.inspectDoc(dir, files)
		if slices.ContainsFunc(files, (*file).pure) {
			h.inspectTypes(dir, files)
		}
	}
	slices.Sort(h.found)
	return slices.Compact(h.found)
}

func (h *house) report(at ast.Node, format string, args ...any) {
	h.found = append(h.found, fmt.Sprintf("%s: %s", h.fset.Position(at.Pos()), fmt.Sprintf(format, args...)))
}

// layer is the place of a package among the layers; -1: it has none.
func layer(dir string) int {
	return slices.IndexFunc(layers, func(line string) bool { return slices.Contains(strings.Fields(line), dir) })
}

func (h *house) inspectImports(f *file) {
	own, test := layer(f.dir()), f.test || under(f.dir(), forTests)
	if own < 0 && !test {
		h.report(f.Name, "package %s has no place among the layers", f.dir())
		return
	}
	inCmd, hasFlags := strings.HasPrefix(f.path, "cmd/"), strings.HasPrefix(f.path, "cmd/") || under(f.path, programsAside)
	for _, spec := range f.Imports {
		p := importPath(spec)
		ours, isOurs := strings.CutPrefix(p, module+"/")
		switch {
		case spec.Name != nil && spec.Name.Name == ".":
			h.report(spec, "dot import of %s", p)
		case under(p, noMocks):
			h.report(spec, "%s: tests use testing and go-cmp, and real parts instead of mocks", p)
		case isOurs && strings.HasPrefix(ours, "cmd/") && (!inCmd || !strings.HasPrefix(ours, "cmd/internal/")):
			h.report(spec, "%s: nothing imports a program", p)
		case f.test:
		case !hasFlags && under(p, cmdOnly):
			h.report(spec, "%s: only cmd/ reads flags and signals", p)
		case test:
		case isOurs && under(ours, forTests):
			h.report(spec, "%s: only tests import what is for tests", p)
		case isOurs && (layer(ours) < 0 || layer(ours) >= own):
			h.report(spec, "%s does not stand below %s among the layers", ours, f.dir())
		case isOurs && !inCmd && intoWing(f.dir(), ours):
			h.report(spec, "%s is a wing: %s does not import it", ours, f.dir())
		case isOurs && slices.Contains(never, [2]string{f.dir(), ours}):
			h.report(spec, "%s never imports %s", f.dir(), ours)
		case !isOurs && !driven(p, f.dir()):
			h.report(spec, "%s has no row among the drivers that allows it in %s", p, f.dir())
		case f.pure() && under(p, notPure):
			h.report(spec, "pure file imports %s", p)
		}
	}
}

// intoWing says whether a package imports one of a wing that is not its own.
func intoWing(dir, imported string) bool {
	return slices.ContainsFunc(wings, func(w string) bool { return under(imported, []string{w}) && !under(dir, []string{w}) })
}

// driven says whether a package may import a path that is not ours.
func driven(p, dir string) bool {
	if first, _, _ := strings.Cut(p, "/"); !strings.Contains(first, ".") {
		return true // the standard library
	}
	for name, dirs := range drivers {
		if under(p, []string{name}) && under(dir, strings.Fields(dirs)) {
			return true
		}
	}
	return false
}

// inspectFile holds what every file must keep.
func (h *house) inspectFile(f *file) {
	name := strings.TrimSuffix(f.Name.Name, "_test")
	if slices.Contains(badNames, name) || slices.Contains(badNames, path.Base(f.dir())) {
		h.report(f.Name, "package %s: the name says nothing", name)
	}
	if n := h.fset.File(f.Pos()).LineCount(); n > maxLines && !f.test {
		h.report(f.Name, "%d lines, more than %d", n, maxLines)
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			h.report(fn, "init function")
		}
	}
	f.eachName(func(at ast.Node, name string) {
		switch {
		case name == "time.Sleep":
			h.report(at, "time.Sleep: wait for what happens, or use testing/synctest")
		case f.test:
		case slices.Contains(clock, name) && !under(f.path, ownClock):
			h.report(at, "%s: time is data outside cmd/ and the logs", name)
		case slices.Contains(environment, name) && !strings.HasPrefix(f.path, "cmd/") && !under(f.path, testParts):
			h.report(at, "%s: only cmd/ reads arguments and environment", name)
		}
	})
}

// inspectPure holds what shows in the syntax of a pure file.
func (h *house) inspectPure(f *file) {
	f.eachName(func(at ast.Node, name string) {
		if slices.Contains(waiting, name) {
			h.report(at, "pure file uses %s", name)
		}
	})
	ast.Inspect(f.File, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			h.report(n, "pure file starts a goroutine")
		case *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
			h.report(n, "pure file uses channels")
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				h.report(n, "pure file uses channels")
			}
		}
		return true
	})
}

func (h *house) inspectDoc(dir string, files []*file) {
	i := slices.IndexFunc(files, func(f *file) bool { return !f.test && !f.generated })
	if i < 0 {
		return // the .proto files speak for generated code
	}
	for _, f := range files {
		if !f.test && f.Doc != nil && strings.HasPrefix(f.Doc.Text(), "Package "+f.Name.Name+" ") {
			return
		}
		if f.Name.Name == "main" && f.Doc != nil {
			return
		}
	}
	h.report(files[i].Name, "package %s has no package comment", dir)
}

// inspectTypes holds what shows only in the types of the pure files of a package.
func (h *house) inspectTypes(dir string, files []*file) {
	var parsed []*ast.File
	for _, f := range files {
		if !f.test && f.built {
			parsed = append(parsed, f.File)
		}
	}
	conf := types.Config{Importer: importer.ForCompiler(h.fset, "gc", func(p string) (io.ReadCloser, error) { return os.Open(h.exports[p]) })}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	if _, err := conf.Check(module+"/"+dir, h.fset, parsed, info); err != nil {
		h.report(parsed[0].Name, "type check: %v", err)
		return
	}
	for _, f := range files {
		if f.pure() && f.built {
			typed{h, f, info}.inspect()
		}
	}
}

type typed struct {
	*house
	f    *file
	info *types.Info
}

var sorted = regexp.MustCompile(`^//house:sorted \S`)

func (p typed) inspect() {
	excused := map[int]bool{} // lines that say why map order does not matter
	for _, g := range p.f.Comments {
		for _, c := range g.List {
			if sorted.MatchString(c.Text) {
				excused[p.fset.Position(c.Pos()).Line] = true
			}
		}
	}
	var inOrder ast.Expr
	for _, d := range p.f.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
			for _, s := range g.Specs {
				p.packageVar(s.(*ast.ValueSpec))
			}
		}
	}
	ast.Inspect(p.f.File, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.RangeStmt:
			if isMap(p.info.TypeOf(n.X)) && !excused[p.fset.Position(n.Pos()).Line] {
				p.report(n, "pure file ranges over a map without a reason (//house:sorted why)")
			}
			p.written(n.Key)
			p.written(n.Value)
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				p.written(e)
			}
		case *ast.IncDecStmt:
			p.written(n.X)
		case *ast.CallExpr:
			fn := p.callee(n)
			if fn == "slices.Sorted" {
				inOrder = n.Args[0] // visited next
			}
			if slices.Contains(mapOrder, fn) && n != inOrder && !excused[p.fset.Position(n.Pos()).Line] {
				p.report(n, "pure file takes %s without a reason (//house:sorted why)", fn)
			}
			for _, arg := range n.Args {
				if strings.HasPrefix(fn, "fmt.") && holdsFloat(p.info.TypeOf(arg), map[types.Type]bool{}) {
					p.report(arg, "pure file formats a float")
				}
			}
		}
		return true
	})
}

// packageVar lets through errors and tables, which nothing computes at run time.
func (p typed) packageVar(s *ast.ValueSpec) {
	if len(s.Values) == 0 && s.Names[0].Name != "_" {
		p.report(s, "pure file has a package variable without a value")
	}
	for _, v := range s.Values {
		ast.Inspect(v, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				return false
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					p.report(n, "pure file has a pointer in a package variable")
				}
			case *ast.CallExpr:
				if fn := p.callee(n); !p.info.Types[n.Fun].IsType() && !slices.Contains(constantsOf, fn) {
					p.report(n, "pure file computes a package variable")
				}
			}
			return true
		})
	}
}

// written reports a package variable that a statement writes to.
func (p typed) written(e ast.Expr) {
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
			if id, ok := x.X.(*ast.Ident); ok {
				if _, ok := p.info.Uses[id].(*types.PkgName); ok {
					e = x.Sel
				}
			}
		case *ast.Ident:
			if v, ok := p.info.Uses[x].(*types.Var); ok && v.Pkg() != nil && v.Parent() == v.Pkg().Scope() {
				p.report(x, "pure file writes to the package variable %s", v.Name())
			}
			return
		default:
			return
		}
	}
}

// callee is the function that a call names, as "import/path.Name".
func (p typed) callee(call *ast.CallExpr) string {
	if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
		if fn, ok := p.info.Uses[sel.Sel].(*types.Func); ok {
			return fn.FullName()
		}
	}
	return ""
}

func isMap(t types.Type) bool {
	switch u := t.Underlying().(type) {
	case *types.Map:
		return true
	case *types.Interface: // of a type parameter
		for e := range u.EmbeddedTypes() {
			if isMap(e) {
				return true
			}
		}
	case *types.Union:
		for term := range u.Terms() {
			if isMap(term.Type()) {
				return true
			}
		}
	}
	return false
}

func holdsFloat(t types.Type, seen map[types.Type]bool) bool {
	if t == nil || seen[t] {
		return false
	}
	seen[t] = true
	switch u := t.Underlying().(type) {
	case *types.Basic:
		return u.Info()&(types.IsFloat|types.IsComplex) != 0
	case *types.Pointer:
		return holdsFloat(u.Elem(), seen)
	case *types.Slice:
		return holdsFloat(u.Elem(), seen)
	case *types.Array:
		return holdsFloat(u.Elem(), seen)
	case *types.Map:
		return holdsFloat(u.Key(), seen) || holdsFloat(u.Elem(), seen)
	case *types.Struct:
		for f := range u.Fields() {
			if holdsFloat(f.Type(), seen) {
				return true
			}
		}
	}
	return false
}

func importPath(s *ast.ImportSpec) string {
	p, _ := strconv.Unquote(s.Path.Value)
	return p
}

// under says whether a path is one of several, or lies under one.
func under(p string, roots []string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return p == r || strings.HasPrefix(p, strings.TrimSuffix(r, "/")+"/") })
}

// eachName calls fn for every name of another package that the file uses, as
// "import/path.Name".
func (f *file) eachName(fn func(at ast.Node, name string)) {
	imported := map[string]string{}
	for _, s := range f.Imports {
		p := importPath(s)
		imported[path.Base(p)] = p
		if s.Name != nil {
			imported[s.Name.Name] = p
		}
	}
	ast.Inspect(f.File, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok && id.Obj == nil && imported[id.Name] != "" {
				fn(sel, imported[id.Name]+"."+sel.Sel.Name)
			}
		}
		return true
	})
}

// TestHouseCatches plants one fault at a time: a check that cannot fail holds nothing.
func TestHouseCatches(t *testing.T) {
	t.Parallel()
	std, docs := exports(t, "errors", "fmt", "maps", "math", "reflect", "regexp", "slices", "time"), readPages(t, "..")
	const policy, loop, prog = "internal/policy/x.go", "internal/evaluator/loop.go", "cmd/refloatctl/x.go"
	tests := []struct{ name, path, src, want string }{
		{"clean", policy, "import \"errors\"\nvar ErrX = errors.New(\"x\")\nvar names = [...]string{\"a\"}\n", ""},
		{"no row", "internal/novel/x.go", "", "no place among the layers"},
		{"a higher layer", policy, `import _ "github.com/refloat/refloat/internal/projection"`, "does not stand below"},
		{"the same layer", loop, `import _ "github.com/refloat/refloat/internal/sink"`, "does not stand below"},
		{"never", "internal/projection/x.go", `import _ "github.com/refloat/refloat/internal/policy/policyfile"`, "never imports"},
		{"a module without a row", policy, `import _ "github.com/spf13/viper"`, "no row among the drivers"},
		{"a driver elsewhere", loop, `import _ "github.com/jackc/pgx/v5"`, "no row among the drivers"},
		{"a driver at home", "internal/jobdb/postgres/x.go", `import _ "github.com/jackc/pgx/v5/pgconn"`, ""},
		{"a longer name is another package", loop, `import _ "github.com/refloat/refloat/internal/chainsaw"`, "does not stand below"},
		{"program", "internal/audit/x_test.go", `import _ "github.com/refloat/refloat/cmd/refloatctl"`, "nothing imports a program"},
		{"settings", prog, `import _ "github.com/refloat/refloat/cmd/internal/settings"`, ""},
		{"settings outside cmd", loop, `import _ "github.com/refloat/refloat/cmd/internal/settings"`, "nothing imports a program"},
		{"model outside tests", "internal/evaluator/loop.go", `import _ "github.com/refloat/refloat/internal/test/model"`, "only tests"},
		{"model in tests", "internal/evaluator/loop_test.go", `import _ "github.com/refloat/refloat/internal/test/model"`, ""},
		{"cobra", loop, `import _ "github.com/spf13/cobra"`, "only cmd/"},
		{"flag", loop, `import _ "flag"`, "only cmd/"},
		{"flag in cmd", prog, `import _ "flag"`, ""},
		{"testify", "internal/policy/x_test.go", `import _ "github.com/stretchr/testify/require"`, "instead of mocks"},
		{"gomock", "internal/policy/x_test.go", `import _ "github.com/golang/mock/gomock"`, "instead of mocks"},
		{"dot import", loop, `import . "strings"`, "dot import"},
		{"package name", "internal/util/x.go", "", "says nothing"},
		{"no comment", policy, "package policy", "no package comment"},
		{"other comment", policy, "// Policies are fun.\npackage policy", "no package comment"},
		{"long", loop, strings.Repeat("\n", maxLines), "more than 500"},
		{"long test", "internal/evaluator/loop_test.go", strings.Repeat("\n", maxLines), ""},
		{"init", loop, "func init() {}", "init function"},
		{"sleep in a test", "internal/policy/x_test.go", "import \"time\"\nfunc f() { time.Sleep(1) }", "time.Sleep"},
		{"sleep renamed", prog, "import clock \"time\"\nvar f = clock.Sleep", "time.Sleep"},
		{"now", loop, "import \"time\"\nvar t = time.Now()", "time is data"},
		{"now as a value", loop, "import \"time\"\nvar now = time.Now", "time is data"},
		{"since", loop, "import \"time\"\nvar t = time.Since(time.Time{})", "time is data"},
		{"now in a log", "internal/eventlog/filelog/x.go", "import \"time\"\nvar t = time.Now()", ""},
		{"now in cmd", prog, "import \"time\"\nvar t = time.Now()", ""},
		{"cites", loop, "// As protocol.md 8, semantics.md 3.1 and 12.4.3, docs/reference/semantics.md 12.4 to 12.6, ADR 4.\n", ""},
		{"cites no page", loop, "// As runbook.md says.\n", "which does not exist"},
		{"cites no section", loop, "// As semantics.md 12.4.9 says.\n", "no such section"},
		{"cites no section at last", loop, "// As semantics.md 12.4 and\n// 12.99 say.\n", "12.99: the page has no such section"},
		{"cites a page of nobody's", loop, "// As GROUPS 4 says.\n", "not in the repository"},
		{"cites no record", loop, "// See ADR 999.\n", "ADR 999"},
		{"environment", loop, "import \"os\"\nvar e = os.Getenv(\"X\")", "only cmd/"},
		{"arguments", loop, "import \"os\"\nvar e = os.Args", "only cmd/"},

		{"pure: timer", policy, "import \"time\"\nfunc f() { _ = time.NewTimer(1) }", "pure file uses time.NewTimer"},
		{"pure: local zone", policy, "import \"time\"\nfunc f(t time.Time) time.Time { return t.In(time.Local) }", "pure file uses time.Local"},
		{"pure: rand", policy, `import _ "math/rand/v2"`, "pure file imports"},
		{"pure: os", policy, `import _ "os"`, "pure file imports"},
		{"pure: net", policy, `import _ "net/http"`, "pure file imports"},
		{"pure: slog", policy, `import _ "log/slog"`, "pure file imports"},
		{"pure: sync", policy, `import _ "sync/atomic"`, "pure file imports"},
		{"shell file of a pure package", "internal/policy/policyfile/load.go", `import _ "os"`, ""},
		{"pure: go", policy, "func f() { go f() }", "goroutine"},
		{"pure: chan", policy, "func f(c chan int) {}", "channels"},
		{"pure: receive", policy, "type c = interface{ x() <-chan int }\nfunc f(v c) { <-v.x() }", "channels"},
		{"pure: select", policy, "func f() { select {} }", "channels"},
		{"pure: map", policy, "func f(m map[int]int) { for range m {} }", "ranges over a map"},
		{"pure: named map", policy, "type set map[int]bool\nfunc f(s struct{ in set }) { for k := range s.in { _ = k } }", "ranges over a map"},
		{"pure: generic map", policy, "func f[M ~map[int]int](m M) { for range m {} }", "ranges over a map"},
		{"pure: map with a reason", policy, "func f(m map[int]int) (n int) {\n\tfor range m { //house:sorted only counts\n\t\tn++\n\t}\n\treturn n\n}", ""},
		{"pure: map with no reason", policy, "func f(m map[int]int) {\n\tfor range m { //house:sorted\n\t}\n}", "ranges over a map"},
		{"pure: slice", policy, "func f(m []int) { for range m {} }", ""},
		{"pure: keys", policy, "import \"maps\"\nfunc f(m map[int]int) any { return maps.Keys(m) }", "takes maps.Keys"},
		{"pure: sorted keys", policy, "import (\n\"maps\"\n\"slices\"\n)\nfunc f(m map[int]int) any { return slices.Sorted(maps.Keys(m)) }", ""},
		{"pure: reflected keys", policy, "import \"reflect\"\nfunc f(v reflect.Value) any { return v.MapKeys() }", "MapKeys"},
		{"pure: float", policy, "import \"fmt\"\nfunc f(x float64) string { return fmt.Sprintf(\"%v\", x) }", "formats a float"},
		{"pure: float inside", policy, "import \"fmt\"\ntype r struct{ a []float32 }\nfunc f(x *r) string { return fmt.Sprint(x) }", "formats a float"},
		{"pure: int", policy, "import \"fmt\"\nfunc f(x int) string { return fmt.Sprint(x) }", ""},
		{"pure: variable", policy, "var n int", "without a value"},
		{"pure: computed variable", policy, "import \"math\"\nvar n = math.Sqrt(2)", "computes a package variable"},
		{"pure: pointer variable", policy, "var n = &struct{ a int }{}", "pointer in a package variable"},
		{"pure: regexp", policy, "import \"regexp\"\nvar re = regexp.MustCompile(`a`)", ""},
		{"pure: written variable", policy, "var n = 0\nfunc f() { n++ }", "writes to the package variable n"},
		{"pure: written table", policy, "var n = map[int]int{}\nfunc f() { n[1] = 2 }", "writes to the package variable n"},
		{"pure: broken", policy, "var n int = \"a\"", "type check"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			src := tt.src
			if !strings.Contains(src, "package ") {
				name := path.Base(path.Dir(tt.path))
				src = fmt.Sprintf("// Package %s is.\npackage %s\n%s", name, name, src)
			}
			h := house{fset: token.NewFileSet(), exports: std, pages: docs}
			if err := h.add(tt.path, []byte(src), true); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(h.inspect(), "\n")
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("inspect = %q, want %q in it", got, tt.want)
			}
		})
	}
}

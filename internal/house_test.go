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

// mayImport says for each of our packages what its non-test files may import
// besides the standard library: packages of ours by directory, others by
// module. A new package is a new row, argued in its commit.
var mayImport = map[string]string{
	"events":    "events/pb google.golang.org/protobuf",
	"events/pb": "google.golang.org/protobuf",

	"internal/policy": "go.yaml.in/yaml/v4",
	"internal/api": "internal/api/pb internal/eventlog internal/policy internal/policy/policylog github.com/coreos/go-oidc/v3 github.com/grpc-ecosystem/grpc-gateway/v2 " +
		"golang.org/x/crypto golang.org/x/time google.golang.org/genproto google.golang.org/grpc google.golang.org/protobuf",
	"internal/armada/policysync":  "internal/api internal/api/pb internal/policy internal/policy/policylog google.golang.org/grpc google.golang.org/protobuf",
	"internal/api/pb":             "github.com/grpc-ecosystem/grpc-gateway/v2 google.golang.org/genproto google.golang.org/grpc google.golang.org/protobuf",
	"internal/policy/policylog":   "events/pb internal/eventlog internal/policy github.com/klauspost/compress google.golang.org/protobuf",
	"internal/eventlog":           "",
	"internal/eventlog/filelog":   "internal/eventlog github.com/cockroachdb/pebble/v2 github.com/klauspost/compress",
	"internal/eventlog/pulsarlog": "internal/eventlog github.com/apache/pulsar-client-go github.com/prometheus/client_golang",
	"internal/eventlog/recording": "internal/eventlog",
	"internal/eventlog/archive":   "internal/eventlog",
	"internal/chain":              "events internal/eventlog internal/policy google.golang.org/protobuf",
	"internal/chain/follow":       "internal/chain internal/eventlog",
	"internal/projection":         "events github.com/cockroachdb/pebble/v2 github.com/tidwall/btree",
	"internal/evaluator": "events events/pb internal/chain internal/eventlog internal/chain/follow internal/policy internal/policy/policylog internal/projection " +
		"google.golang.org/protobuf",
	"internal/jobdb":          "events internal/chain internal/eventlog internal/policy",
	"internal/jobdb/table":    "events internal/chain internal/eventlog internal/jobdb",
	"internal/jobdb/sqlite":   "internal/jobdb internal/jobdb/table github.com/ncruces/go-sqlite3",
	"internal/jobdb/postgres": "internal/jobdb internal/jobdb/table internal/jobdb/pgerror github.com/jackc/pgx/v5",
	"internal/jobdb/pgerror":  "github.com/jackc/pgx/v5",
	"internal/sink":           "events events/pb internal/chain internal/eventlog internal/chain/follow internal/jobdb golang.org/x/sync google.golang.org/protobuf",
	"internal/audit":          "events internal/chain internal/eventlog internal/evaluator internal/chain/follow internal/jobdb internal/policy internal/policy/policylog internal/projection",
	"internal/policy/lint":    "internal/policy",
	"internal/policy/diff":    "internal/audit internal/chain internal/evaluator internal/eventlog internal/policy",
	"internal/audit/shadow":   "internal/audit internal/chain internal/evaluator internal/eventlog internal/jobdb internal/policy internal/sink",
	"internal/policy/suite": "events/pb internal/audit internal/chain internal/evaluator internal/eventlog internal/jobdb internal/policy internal/policy/lint " +
		"internal/projection go.yaml.in/yaml/v4 google.golang.org/protobuf",
	"internal/armada/schedulerdb":         "internal/armada/schedulerdb/pb internal/eventlog google.golang.org/protobuf k8s.io/apimachinery",
	"internal/armada/schedulerdb/pb":      "google.golang.org/protobuf",
	"internal/armada/schedulerdb/pgstore": "internal/armada/schedulerdb internal/jobdb/pgerror github.com/jackc/pgx/v5",
	"internal/armada/schedulerdb/schema":  "github.com/jackc/pgx/v5",
	"internal/armada/writer": "internal/armada/schedulerdb internal/armada/schedulerdb/pb internal/armada/schedulerdb/pgstore internal/chain internal/eventlog internal/jobdb internal/jobdb/postgres internal/sink " +
		"github.com/jackc/pgx/v5 google.golang.org/protobuf",
	"internal/armada/controlplane": "internal/armada/schedulerdb internal/armada/schedulerdb/pgstore internal/eventlog internal/jobdb internal/jobdb/postgres github.com/jackc/pgx/v5",
	"internal/checkpoint":          "gocloud.dev",
	"internal/placement":           "internal/eventlog github.com/apache/pulsar-client-go",
	"internal/armada/cutover": "events/pb internal/armada/schedulerdb internal/armada/schedulerdb/pgstore internal/doctor internal/eventlog internal/eventlog/pulsarlog internal/jobdb internal/jobdb/postgres internal/jobdb/table internal/armada/writer " +
		"github.com/apache/pulsar-client-go github.com/jackc/pgx/v5 google.golang.org/protobuf",
	"internal/doctor": "internal/armada/schedulerdb/pgstore github.com/jackc/pgx/v5 internal/chain internal/eventlog internal/eventlog/pulsarlog github.com/apache/pulsar-client-go",
	"internal/app": "internal/api internal/api/pb internal/armada/schedulerdb internal/armada/policysync internal/armada/schedulerdb/pgstore internal/audit internal/chain internal/checkpoint internal/armada/controlplane internal/eventlog/archive internal/evaluator internal/eventlog internal/eventlog/filelog " +
		"internal/eventlog/pulsarlog internal/chain/follow internal/jobdb internal/jobdb/postgres internal/jobdb/sqlite internal/armada/writer internal/jobdb/pgerror internal/placement internal/policy internal/policy/policylog internal/projection internal/eventlog/recording internal/sink " +
		"github.com/cenkalti/backoff/v5 github.com/cockroachdb/pebble/v2 github.com/jackc/pgx/v5 github.com/prometheus/client_golang gocloud.dev golang.org/x/sync golang.org/x/time google.golang.org/protobuf",

	// For tests only: no row above names them.
	"internal/test/e2e": "events/pb internal/audit internal/eventlog internal/eventlog/pulsarlog internal/jobdb internal/jobdb/sqlite " +
		"internal/eventlog/recording internal/sink github.com/apache/pulsar-client-go google.golang.org/protobuf",
	"internal/test/chaos": "events/pb internal/test/e2e internal/eventlog internal/test/pulsartest internal/eventlog/recording " +
		"github.com/apache/pulsar-client-go golang.org/x/sync google.golang.org/protobuf",
	"internal/test/armadabox": "internal/test/e2e internal/test/pgtest internal/test/pulsartest github.com/klauspost/compress",
	"internal/test/standin": "internal/armada/schedulerdb/schema internal/eventlog internal/eventlog/filelog internal/test/pgtest " +
		"github.com/cockroachdb/pebble/v2 github.com/jackc/pgx/v5 google.golang.org/protobuf k8s.io/apimachinery",
	"internal/test/rowtest":    "github.com/google/go-cmp internal/armada/schedulerdb internal/armada/schedulerdb/pb internal/eventlog internal/eventlog/recording github.com/jackc/pgx/v5 google.golang.org/protobuf",
	"internal/test/pgtest":     "github.com/jackc/pgx/v5",
	"internal/test/pulsartest": "github.com/testcontainers/testcontainers-go github.com/moby/moby github.com/docker/go-connections",
	"internal/test/sim": "events events/pb internal/chain internal/evaluator internal/eventlog internal/chain/follow internal/jobdb internal/test/model " +
		"internal/policy internal/policy/policylog internal/projection internal/sink google.golang.org/protobuf",
	"internal/test/policysynctest": "google.golang.org/grpc google.golang.org/protobuf",
	"internal/test/logtest":        "internal/eventlog github.com/google/go-cmp pgregory.net/rapid",
	"internal/test/jobdbtest":      "events internal/chain internal/eventlog internal/jobdb internal/policy github.com/google/go-cmp pgregory.net/rapid",
	"internal/test/bench":          "",
	"internal/test/model":          "events/pb google.golang.org/protobuf pgregory.net/rapid",

	"cmd/evaluator":            programs,
	"cmd/ingester":             programs,
	"cmd/refloatctl":           programs,
	"cmd/internal/apiflags":    "internal/api internal/app internal/policy github.com/spf13/cobra go.yaml.in/yaml/v4",
	"cmd/internal/program":     "cmd/internal/apiflags cmd/internal/pulsarflags cmd/internal/settings internal/eventlog internal/app github.com/spf13/cobra",
	"cmd/internal/pulsarflags": "cmd/internal/settings internal/eventlog/pulsarlog github.com/spf13/cobra",
	"cmd/internal/settings":    "github.com/spf13/cobra github.com/spf13/pflag go.yaml.in/yaml/v4",
}

const programs = "cmd/internal/apiflags internal/api internal/api/pb google.golang.org/grpc google.golang.org/protobuf cmd/internal/program cmd/internal/pulsarflags cmd/internal/settings internal/audit internal/chain internal/eventlog/archive internal/armada/cutover internal/doctor internal/evaluator internal/eventlog internal/eventlog/filelog " +
	"internal/eventlog/pulsarlog internal/chain/follow internal/jobdb internal/jobdb/sqlite internal/app internal/policy internal/policy/diff internal/policy/lint internal/policy/policylog internal/policy/suite internal/projection " +
	"internal/eventlog/recording internal/audit/shadow internal/sink github.com/cockroachdb/pebble/v2 github.com/mattn/go-isatty github.com/prometheus/client_golang " +
	"github.com/spf13/cobra github.com/spf13/pflag golang.org/x/sync golang.org/x/term"

// never holds pairs of which the first must not reach the second by any path of the table.
var never = [][2]string{
	{"internal/policy", "internal/projection"},
	{"internal/projection", "internal/policy"},
	{"internal/evaluator", "internal/sink"},
	{"internal/sink", "internal/evaluator"},
	{"internal/eventlog", "internal/eventlog/filelog"},
	{"internal/eventlog", "internal/eventlog/pulsarlog"},
}

// pure files see no clock, no chance, no I/O, no goroutine and no map order;
// shell files are the exceptions among them.
var (
	pure = []string{
		"events/*.go", "internal/chain/*.go", "internal/policy/*.go", "internal/projection/*.go",
		"internal/evaluator/step.go", "internal/evaluator/facts.go", "internal/sink/ops.go",
		"internal/armada/schedulerdb/*.go", "internal/armada/schedulerdb/pgstore/change.go",
	}
	shell = []string{"internal/policy/load.go", "internal/projection/store.go"}
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

// TestHouse holds the rules of CONVENTIONS that a program can check.
//
// What a file names is read from its syntax; dot imports are forbidden, so a
// qualified name cannot hide. Map ranges, floats and writes to package
// variables in pure files are seen by go/types over the compiler's export data.
// Not seen: a float or a map inside an interface, a package variable changed
// through a pointer or a method, and what a called package does.
func TestHouse(t *testing.T) {
	t.Parallel()
	h := house{table: mayImport, fset: token.NewFileSet(), exports: exports(t, "./...")}
	h.read(t, "..")
	if len(h.files) < 10 {
		t.Fatalf("read %d files, want the whole module", len(h.files))
	}
	for _, finding := range h.inspect() {
		t.Error(finding)
	}
}

type house struct {
	table   map[string]string // mayImport
	fset    *token.FileSet
	exports map[string]string // import path → file of export data
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
	h.inspectTable()
	dirs := map[string][]*file{}
	for _, f := range h.files {
		dirs[f.dir()] = append(dirs[f.dir()], f)
		h.inspectImports(f)
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

// inspectTable holds that no forbidden pair is connected.
func (h *house) inspectTable() {
	for _, pair := range never {
		seen, todo := map[string]bool{}, []string{pair[0]}
		for len(todo) > 0 {
			dir := todo[0]
			todo = todo[1:]
			for to := range strings.FieldsSeq(h.table[dir]) {
				if to == pair[1] {
					h.found = append(h.found, fmt.Sprintf("import table: %s reaches %s by %s", pair[0], pair[1], dir))
				}
				if !seen[to] {
					seen[to] = true
					todo = append(todo, to)
				}
			}
		}
	}
}

func (h *house) inspectImports(f *file) {
	row, ok := h.table[f.dir()]
	if !ok && !f.test {
		h.report(f.Name, "package %s has no row in the import table", f.dir())
		return
	}
	allowed, inCmd, hasFlags := strings.Fields(row), strings.HasPrefix(f.path, "cmd/"), strings.HasPrefix(f.path, "cmd/") || under(f.path, programsAside)
	for _, spec := range f.Imports {
		p := importPath(spec)
		ours, isOurs := strings.CutPrefix(p, module+"/")
		first, _, _ := strings.Cut(p, "/")
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
		case isOurs && !slices.Contains(allowed, ours),
			!isOurs && strings.Contains(first, ".") && !under(p, allowed):
			h.report(spec, "the row of %s in the import table does not allow %s", f.dir(), p)
		case f.pure() && under(p, notPure):
			h.report(spec, "pure file imports %s", p)
		}
	}
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
	std := exports(t, "errors", "fmt", "maps", "math", "reflect", "regexp", "slices", "time")
	const policy, loop, prog = "internal/policy/x.go", "internal/evaluator/loop.go", "cmd/refloatctl/x.go"
	tests := []struct{ name, path, src, want string }{
		{"clean", policy, "import \"errors\"\nvar ErrX = errors.New(\"x\")\nvar names = [...]string{\"a\"}\n", ""},
		{"no row", "internal/novel/x.go", "", "no row in the import table"},
		{"ours outside the row", policy, `import _ "github.com/refloat/refloat/internal/projection"`, "does not allow"},
		{"theirs outside the row", policy, `import _ "github.com/spf13/viper"`, "does not allow"},
		{"a longer name is another module", loop, `import _ "github.com/refloat/refloat/internal/chainsaw"`, "does not allow"},
		{"program", "internal/audit/x_test.go", `import _ "github.com/refloat/refloat/cmd/refloatctl"`, "nothing imports a program"},
		{"settings", prog, `import _ "github.com/refloat/refloat/cmd/internal/settings"`, ""},
		{"settings outside cmd", loop, `import _ "github.com/refloat/refloat/cmd/internal/settings"`, "nothing imports a program"},
		{"naive outside tests", "internal/evaluator/loop.go", `import _ "github.com/refloat/refloat/internal/test/model"`, "does not allow"},
		{"naive in tests", "internal/evaluator/loop_test.go", `import _ "github.com/refloat/refloat/internal/test/model"`, ""},
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
		{"environment", loop, "import \"os\"\nvar e = os.Getenv(\"X\")", "only cmd/"},
		{"arguments", loop, "import \"os\"\nvar e = os.Args", "only cmd/"},

		{"pure: timer", policy, "import \"time\"\nfunc f() { _ = time.NewTimer(1) }", "pure file uses time.NewTimer"},
		{"pure: local zone", policy, "import \"time\"\nfunc f(t time.Time) time.Time { return t.In(time.Local) }", "pure file uses time.Local"},
		{"pure: rand", policy, `import _ "math/rand/v2"`, "pure file imports"},
		{"pure: os", policy, `import _ "os"`, "pure file imports"},
		{"pure: net", policy, `import _ "net/http"`, "pure file imports"},
		{"pure: slog", policy, `import _ "log/slog"`, "pure file imports"},
		{"pure: sync", policy, `import _ "sync/atomic"`, "pure file imports"},
		{"shell file of a pure package", "internal/policy/load.go", `import _ "os"`, ""},
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
			h := house{table: mayImport, fset: token.NewFileSet(), exports: std}
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

// TestHouseCatchesPaths plants a forbidden path in a table.
func TestHouseCatchesPaths(t *testing.T) {
	t.Parallel()
	h := house{table: map[string]string{
		"internal/evaluator": "events internal/audit",
		"internal/audit":     "internal/evaluator internal/sink",
	}}
	h.inspectTable()
	want := []string{"import table: internal/evaluator reaches internal/sink by internal/audit"}
	if !slices.Equal(h.found, want) {
		t.Errorf("inspectTable = %q, want %q", h.found, want)
	}
}

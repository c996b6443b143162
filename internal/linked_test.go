package internal_test

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// parts are the entries of what one of two programs links, and the other does not: internal/app has the parts of both.
var parts = map[string][]string{
	"evaluator": {
		module + "/internal/evaluator.(*Owner).publish", module + "/internal/api.Handler", module + "/internal/web.Open",
		module + "/internal/armada/policysync.New", module + "/internal/checkpoint/storage.Open",
		"google.golang.org/grpc.NewServer", "github.com/minio/minio-go/v7.(*Client).PutObject",
	},
	"ingester": {
		module + "/internal/sink.New", module + "/internal/armada/writer.(*Writer).Write", module + "/internal/armada/controlplane.(*Follower).Run",
		module + "/internal/schedulerdb/pgstore.(*Writer).Apply",
	},
}

// callsMethods links all exported methods into a program that links it, which makes it a quarter larger: the page's
// templates need it, and the ingester has no page.
const callsMethods = "text/template.(*state).evalField"

func TestLinked(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("reads programs in ELF")
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-tags=grpcnotrace", "-ldflags=-w", "-o", dir, "./cmd/evaluator", "./cmd/ingester")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for program := range parts {
		linked := functions(t, filepath.Join(dir, program))
		for of, entries := range parts {
			for _, f := range entries {
				if linked[f] != (of == program) {
					t.Errorf("%s is a part of the %s: linked into the %s: %v", f, of, program, linked[f])
				}
			}
		}
		if program == "ingester" && linked[callsMethods] {
			t.Errorf("the %s links %s", program, callsMethods)
		}
	}
}

// functions are the names of the functions in a program.
func functions(t *testing.T, program string) map[string]bool {
	t.Helper()
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, s := range symbols {
		all[s.Name] = true
	}
	return all
}

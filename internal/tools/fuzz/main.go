// Fuzz runs every Fuzz function of the module for a given time, one per processor at a
// time, each with one worker.
//
// The arguments are the root of the module and the time for each function. The total is
// that time multiplied by the number of functions and divided by the number of
// processors, plus the time to build them: each package is built once, however many
// functions it has.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: fuzz ROOT TIME")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

func run(root, fuzzTime string) error {
	packages, err := list(root)
	if err != nil {
		return err
	}
	if len(packages) == 0 {
		return fmt.Errorf("no Fuzz functions under %s", root)
	}
	bin, err := os.MkdirTemp("", "fuzz")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	corpus, err := output(root, "go", "env", "GOCACHE")
	if err != nil {
		return err
	}
	total := 0
	for _, p := range packages {
		total += len(p.functions)
	}
	r := runner{root: root, time: fuzzTime, bin: bin, corpus: filepath.Join(corpus, "fuzz"), total: total}
	return r.run(packages)
}

// runner runs functions as they are built, so that one compiles while others run.
type runner struct {
	root, time, bin string
	corpus          string // what fuzzing found before, as go test keeps it
	total           int

	mu   sync.Mutex // guards what follows, and standard output
	done int
	errs []error
}

func (r *runner) run(packages []fuzzed) error {
	var all sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, p := range packages {
		binary, err := r.build(i, p)
		if err != nil {
			r.failed(fmt.Errorf("%s: %w", p.dir, err))
			break
		}
		for _, name := range p.functions {
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				r.fuzz(target{dir: filepath.Join(r.root, p.dir), pkg: p.dir, name: name, binary: binary})
			})
		}
	}
	all.Wait()
	return errors.Join(r.errs...)
}

func (r *runner) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

// build compiles the tests of a package with what fuzzing wants to see: the branches of
// this module. With go test -fuzz, the standard library and all dependencies would be
// compiled again as well. Vet has its own place in CI.
func (r *runner) build(n int, p fuzzed) (string, error) {
	binary := filepath.Join(r.bin, fmt.Sprintf("%d.test", n))
	_, err := output(r.root, "go", "test", "-c", "-vet=off", "-gcflags="+module+"/...=-d=libfuzzer", "-o", binary, "./"+p.dir)
	return binary, err
}

type target struct{ dir, pkg, name, binary string }

// fuzz runs one function, and again where it only came too late.
func (r *runner) fuzz(t target) {
	var text []byte
	var err error
	for range 3 {
		if text, err = r.once(t); !errors.Is(err, errLate) {
			break
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	fmt.Printf("--- %d of %d: %s %s\n%s", r.done, r.total, t.pkg, t.name, text)
	switch {
	case errors.Is(err, errLate):
		fmt.Println("    late three times: no input failed in the time that there was")
	case err != nil:
		r.errs = append(r.errs, fmt.Errorf("%s %s: %w", t.pkg, t.name, err))
	}
}

// errLate: the time was over while a worker was busy, which a test binary calls a
// failure: there is no input that fails, only a deadline that passed.
var errLate = errors.New("the time was over before the workers had ended")

func (r *runner) once(t target) ([]byte, error) {
	cmd := exec.Command(t.binary, "-test.run=^$", "-test.fuzz=^"+t.name+"$", "-test.fuzztime="+r.time,
		"-test.fuzzminimizetime=200x", "-test.parallel=1", "-test.fuzzcachedir="+filepath.Join(r.corpus, module, t.pkg))
	cmd.Dir = t.dir
	out, err := cmd.CombinedOutput()
	if err != nil && late(out) {
		return out, errors.Join(errLate, err)
	}
	return out, err
}

// late says whether a run failed for want of time only.
func late(out []byte) bool {
	return bytes.Contains(out, []byte("\n    context deadline exceeded\n")) && !bytes.Contains(out, []byte("Failing input written to"))
}

// output is what a command prints to standard output, in one line.
func output(dir, name string, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out, &stderr)
	}
	return strings.TrimSpace(string(out)), nil
}

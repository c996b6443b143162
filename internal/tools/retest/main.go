// Retest runs tests by gotestsum, and runs a package that waits for a real broker or a
// real Armada once more when it fails: there, a slow machine may exceed a test's timeout.
// The package runs again as a whole, under the same shuffle seed, so that a failure that
// depends on the order of tests fails again; what was run again is listed at the end. A
// failure in any other package stays a failure.
//
//	retest ROOT PACKAGES GO-TEST-FLAG…
//
// PACKAGES are separated by spaces. Among the flags is -shuffle=SEED, with a number.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// waits are the packages of tests that wait for a broker or for Armada.
var waits = []string{
	"github.com/refloat/refloat/internal/test/pulsartest",
	"github.com/refloat/refloat/internal/test/e2e",
	"github.com/refloat/refloat/internal/test/armadabox",
}

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: retest ROOT PACKAGES GO-TEST-FLAG…")
		os.Exit(2)
	}
	if err := run(os.Args[1], strings.Fields(os.Args[2]), os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "retest:", err)
		os.Exit(1)
	}
}

func run(root string, packages, flags []string) error {
	if !slices.ContainsFunc(flags, seeded) {
		return errors.New("no -shuffle=SEED among the flags: a package could not run again in the same order")
	}
	log, err := os.CreateTemp("", "retest")
	if err != nil {
		return err
	}
	defer os.Remove(log.Name())
	first := test(root, log.Name(), packages, flags)
	if first == nil {
		return nil
	}
	failed, err := failures(log)
	if err != nil {
		return err
	}
	slow, err := waiting(root)
	if err != nil {
		return err
	}
	var again []string
	for _, f := range failed {
		if !slices.Contains(slow, f.pkg) {
			return fmt.Errorf("%w; nothing is run again, because %s waits for no broker and no Armada", first, f.pkg)
		}
		again = append(again, f.pkg)
	}
	if len(again) == 0 {
		return first // nothing that could be built
	}
	fmt.Printf("\n=== run again as a whole: %s\n", strings.Join(again, " "))
	second := test(root, log.Name(), again, flags)
	fmt.Println("\n=== packages that were run again, with what had failed")
	for _, f := range failed {
		fmt.Printf("%s: %s\n", f.pkg, strings.Join(f.tests, ", "))
	}
	return second
}

func seeded(flag string) bool {
	seed, ok := strings.CutPrefix(flag, "-shuffle=")
	return ok && seed != "" && strings.Trim(seed, "0123456789") == ""
}

// test runs packages, and writes the events of test2json into a file.
func test(root, events string, packages, flags []string) error {
	args := []string{
		"tool", "-modfile=internal/tools/go.mod", "gotestsum", "--format=pkgname-and-test-fails",
		"--jsonfile=" + events, "--packages=" + strings.Join(packages, " "), "--",
	}
	cmd := exec.Command("go", append(args, flags...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("tests failed: %w", err)
	}
	return nil
}

// failure is a package that failed, with the top-level tests in it that did; none: it
// ended without an answer, by a panic or its timeout.
type failure struct {
	pkg   string
	tests []string
}

// failures reads what failed from events of test2json.
func failures(events io.Reader) ([]failure, error) {
	var found []failure
	tests := map[string][]string{}
	for d := json.NewDecoder(events); ; {
		var e struct{ Action, Package, Test string }
		switch err := d.Decode(&e); {
		case errors.Is(err, io.EOF):
			return found, nil
		case err != nil:
			return nil, fmt.Errorf("read events of tests: %w", err)
		}
		switch {
		case e.Action != "fail" || strings.Contains(e.Test, "/"):
		case e.Test != "":
			tests[e.Package] = append(tests[e.Package], e.Test)
		default:
			found = append(found, failure{e.Package, tests[e.Package]})
		}
	}
}

// waiting returns the packages whose tests wait for a broker or for Armada.
func waiting(root string) ([]string, error) {
	const imports = `{{.ImportPath}} {{join .Imports " "}} {{join .TestImports " "}} {{join .XTestImports " "}}`
	cmd := exec.Command("go", "list", "-f", imports, "./...")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var all []string
	for line := range bytes.Lines(out) {
		if f := strings.Fields(string(line)); slices.ContainsFunc(f, func(p string) bool { return slices.Contains(waits, p) }) {
			all = append(all, f[0])
		}
	}
	return all, nil
}

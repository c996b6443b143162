// Fuzz runs every Fuzz function of the module, one after the other.
//
// The arguments are the root of the module and how long each one runs.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
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
	targets, err := list(root)
	if err != nil {
		return err
	}
	if len(targets) == 0 {
		return fmt.Errorf("no Fuzz functions under %s", root)
	}
	for i, t := range targets {
		fmt.Printf("--- %d of %d: %s %s\n", i+1, len(targets), t.pkg, t.name)
		err := t.fuzz(root, fuzzTime)
		for again := 2; again > 0 && errors.Is(err, errLate); again-- {
			fmt.Println("    its workers were late at the end; once more")
			err = t.fuzz(root, fuzzTime)
		}
		switch {
		case errors.Is(err, errLate):
			fmt.Println("    late three times: no input failed in the time that there was")
		case err != nil:
			return fmt.Errorf("%s %s: %w", t.pkg, t.name, err)
		}
	}
	return nil
}

// errLate: go test -fuzz came to the end of its time while a worker was busy, and
// calls that a failure: there is no input that fails, only a deadline that passed.
var errLate = errors.New("the time was over before the workers had ended")

func (t target) fuzz(root, fuzzTime string) error {
	var out bytes.Buffer
	cmd := exec.Command("go", "test", "-run=^$", "-fuzz=^"+t.name+"$", "-fuzztime="+fuzzTime, "-fuzzminimizetime=200x", t.pkg)
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, io.MultiWriter(os.Stdout, &out), os.Stderr
	err := cmd.Run()
	if err != nil && bytes.Contains(out.Bytes(), []byte("\n    context deadline exceeded\n")) &&
		!bytes.Contains(out.Bytes(), []byte("Failing input written to")) {
		return errors.Join(errLate, err)
	}
	return err
}

type target struct{ pkg, name string }

// list asks each test binary for its Fuzz functions: go test prints their
// names, and then a line that names the package.
func list(root string) ([]target, error) {
	cmd := exec.Command("go", "test", "-list=^Fuzz", "./...")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go test -list: %w\n%s", err, out)
	}
	var targets []target
	var names []string
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		f := strings.Fields(s.Text())
		switch {
		case len(f) == 1 && strings.HasPrefix(f[0], "Fuzz"):
			names = append(names, f[0])
		case len(f) > 1 && (f[0] == "ok" || f[0] == "?"):
			for _, n := range names {
				targets = append(targets, target{f[1], n})
			}
			names = nil
		}
	}
	return targets, nil
}

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/authoring/suite"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

const outputJUnit = "junit"

type testFlags struct {
	run, output                       string
	update, coverage, mutate, verbose bool
}

func newTest() *cobra.Command {
	var f testFlags
	cmd := &cobra.Command{
		Use:   "test [DIR|FILE]...",
		Short: "Run policy tests",
		Long: `Run policy tests: the files *_test.yaml below the given directories (default: the
working directory). A test is a job with failures at given times, and the expected
outcome of each failure. Tests are decided by the same code as live failures.

  kind: RetryPolicyTest
  policies: [.]                  # paths from this file; default: its directory
  tests:
  - name: OOM is retried once
    job: {queue: ml}
    events:
    - {fail: {condition: OOMKilled}, expect: {decision: Retry, rule: ml/oom, delay: 30s}}
    - {fail: {condition: OOMKilled}, expect: {decision: Fail, code: RuleLimit}}

docs/policies.md describes the format. --coverage lists rules that no test reached;
--mutate breaks each rule and limit, and lists mutants that no test detected; both are
findings. --update replaces expectations by actual outcomes.

Exit codes: 0 passed, 1 failed (or a finding), 2 usage, 3 environment.`,
		Example: `  refloatctl test examples/policies
  refloatctl test examples/policies --run OOM -v
  refloatctl test examples/policies --coverage --mutate
  refloatctl test my-policies -o junit > report.xml
  refloatctl test my-policies/ml_test.yaml --update`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{"."}
			}
			return test(cmd, f, args)
		},
	}
	cmd.Flags().StringVar(&f.run, "run", "", "only tests whose name matches this regular expression")
	addForms(cmd, &f.output, "text, json (one test a line) or junit", outputText, show.FormJSON, outputJUnit)
	cmd.Flags().BoolVar(&f.update, "update", false, "replace the expectations in the files by the actual outcomes")
	cmd.Flags().BoolVar(&f.coverage, "coverage", false, "list rules that no test reached")
	cmd.Flags().BoolVar(&f.mutate, "mutate", false, "break each rule and limit, and list mutants that no test detected")
	cmd.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "also show passed tests")
	cmd.AddCommand(newTestRecord())
	return cmd
}

const outputText = "text"

// bench holds the tests of one command and the policies that they use.
type bench struct {
	read    func(paths ...string) ([]policyfile.File, error)
	suites  []*suite.Suite
	results [][]suite.Result // by suite
	sets    map[string]*policyfile.Set
	files   map[[32]byte][]policyfile.File // by digest of the set
}

func test(cmd *cobra.Command, f testFlags, paths []string) error {
	only, err := regexp.Compile(f.run)
	if err != nil {
		return usageError{fmt.Errorf("--run: %w", err)}
	}
	if f.update && (f.run != "" || f.coverage || f.mutate) {
		return usageError{errors.New("--update works on whole files: omit the other flags")}
	}
	b, err := openBench(cmd, paths)
	if err != nil {
		return err
	}
	ran := 0
	for _, s := range b.suites {
		var results []suite.Result
		for i := range s.Tests {
			if only.MatchString(s.Tests[i].Name) {
				results = append(results, s.Run(&s.Tests[i], b.policies(s)))
				ran++
			}
		}
		b.results = append(b.results, results)
	}
	if ran == 0 {
		return usageError{fmt.Errorf("--run %q matches no test", f.run)}
	}
	if f.update {
		return b.update(cmd)
	}
	return b.report(cmd, f)
}

// openBench reads the test files and the policies that they name.
func openBench(cmd *cobra.Command, paths []string) (*bench, error) {
	names, err := testFiles(paths)
	if err != nil {
		return nil, err
	}
	read := func(paths ...string) ([]policyfile.File, error) { return app.PolicyFiles(cmd.Context(), paths...) }
	b := &bench{read: read, sets: map[string]*policyfile.Set{}, files: map[[32]byte][]policyfile.File{}}
	var problems policyfile.Problems
	for _, name := range names {
		files, err := read(name)
		if err != nil {
			return nil, err
		}
		s, err := suite.Parse(files[0])
		if wrong, ok := errors.AsType[policyfile.Problems](err); ok {
			problems = append(problems, wrong...)
			continue
		}
		if err != nil {
			return nil, err
		}
		b.suites = append(b.suites, s)
		for _, list := range s.Files() {
			_, err := b.policies(s)(list)
			if wrong, ok := errors.AsType[policyfile.Problems](err); ok {
				problems = append(problems, wrong...)
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if len(problems) > 0 {
		problems.Sort()
		return nil, printedProblems(cmd, slices.Compact(problems))
	}
	return b, nil
}

// testFiles finds test files: in directories recursively, except hidden ones.
func testFiles(paths []string) ([]string, error) {
	var names []string
	for _, path := range paths {
		err := filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return fmt.Errorf("find tests: %w", err)
			case name != path && strings.HasPrefix(d.Name(), ".") && d.IsDir():
				return filepath.SkipDir
			case !d.IsDir() && (name == path || policyfile.IsTest(name) && !strings.HasPrefix(d.Name(), ".")):
				names = append(names, name)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if names == nil {
		return nil, fmt.Errorf("no *_test.yaml below %s; `refloatctl init DIR` writes an example", strings.Join(paths, ", "))
	}
	return names, nil
}

// policies reads the policies that a suite names, each file once.
func (b *bench) policies(s *suite.Suite) suite.Policies {
	return func(paths []string) (*policyfile.Set, error) {
		dir := filepath.Dir(s.File)
		if len(paths) == 0 {
			paths = []string{"."}
		}
		var from []string
		for _, p := range paths {
			if !filepath.IsAbs(p) {
				p = filepath.Join(dir, p)
			}
			from = append(from, p)
		}
		key := strings.Join(from, "\x00")
		if set := b.sets[key]; set != nil {
			return set, nil
		}
		files, err := b.read(from...)
		if err != nil {
			return nil, err
		}
		set, err := policyfile.Parse(files)
		if err != nil {
			return nil, err
		}
		b.sets[key], b.files[set.Digest()] = set, files
		return set, nil
	}
}

// update writes the actual outcomes into the test files.
func (b *bench) update(cmd *cobra.Command) error {
	for i, s := range b.suites {
		data, err := s.Update(b.results[i], b.policies(s))
		if err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), err)
			return errFinding
		}
		old, err := os.ReadFile(s.File)
		if err != nil {
			return fmt.Errorf("update: %w", err)
		}
		if string(old) == string(data) {
			fmt.Fprintf(cmd.OutOrStdout(), "%s: nothing to update\n", s.File)
			continue
		}
		if err := replaceFile(s.File, data); err != nil {
			return fmt.Errorf("update: %w", err)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: updated; review the diff before you commit it\n", s.File)
	}
	return nil
}

// replaceFile replaces a file atomically.
func replaceFile(name string, data []byte) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	next := name + ".new"
	if err := os.WriteFile(next, data, info.Mode().Perm()); err != nil {
		return err
	}
	return os.Rename(next, name)
}

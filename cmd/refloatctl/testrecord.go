package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy/suite"
)

type testRecordFlags struct {
	deployment
	job, out, policies string
}

func newTestRecord() *cobra.Command {
	var f testRecordFlags
	cmd := &cobra.Command{
		Use:   "record --job ID (--data DIR | --pulsar URL --job-db URL) --out DIR",
		Short: "Turn a job's history into a test",
		Long: `Turn the decided failures of a real job into a test file that expects the decisions
made then, and write the policies that made them beside it. The test is run before it
is kept: it passes as recorded.

With --policies PATH the test uses your policy files instead: it fails if they decide
differently (exit code 1), and is kept nevertheless.`,
		Example: `  refloatctl test record --job 01m7xn681y99tqr9907k6hqh4d --data .refloat-run --out incident
  refloatctl test incident -v
  refloatctl test record --job 01m7xn681y99tqr9907k6hqh4d --data .refloat-run --out my-policies/tests --policies my-policies`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case f.job == "":
				return usageError{errors.New("--job ID is required: `refloatctl get decisions --data DIR` lists jobs")}
			case f.out == "":
				return usageError{errors.New("--out DIR is required: where to write the test")}
			}
			if err := cmp.Or(f.checkLogs(), f.checkJobs()); err != nil {
				return err
			}
			return testRecord(cmd, f)
		},
	}
	cmd.Flags().StringVar(&f.job, "job", "", "id of the job (required)")
	f.bind(cmd)
	cmd.Flags().StringVar(&f.out, "out", "", "directory to write to (required)")
	cmd.Flags().StringVar(&f.policies, "policies", "", "policy files to test (default: those that decided, written beside the test)")
	return cmd
}

func testRecord(cmd *cobra.Command, f testRecordFlags) error {
	h, left, err := historyOf(cmd, f)
	if err != nil {
		return err
	}
	name := filepath.Join(f.out, fileName(f.job)+"_test.yaml")
	if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("record: %s already exists", name)
	}
	h.Paths = map[uint64][]string{}
	for _, r := range h.Runs {
		generation := r.Decision.Generation
		if h.Paths[generation] != nil {
			continue
		}
		if h.Paths[generation], err = f.recordPolicies(cmd, generation); err != nil {
			return err
		}
	}
	data, err := suite.Record(h)
	if err != nil {
		return err
	}
	if err := writeNew(name, data); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "wrote %s: %s\n", name, plural.Of(len(h.Runs), "failure"))
	if left > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s not decided and not included\n", plural.Of(left, "failed run was", "failed runs were"))
	}
	return test(cmd, testFlags{output: outputText}, []string{name})
}

// historyOf reads the job's history from the job database.
func historyOf(cmd *cobra.Command, f testRecordFlags) (h *suite.History, left int, err error) {
	jobs, runs, err := findJob(cmd, f.deployment, f.job)
	if err != nil {
		return nil, 0, err
	}
	for i := range jobs {
		h = &suite.History{Job: &jobs[i]}
		byID := map[string]*jobdb.Run{}
		for k := range runs[i] {
			byID[runs[i][k].RunID] = &runs[i][k]
		}
		filter := jobdb.RecordFilter{JobID: jobs[i].JobID, Partition: &jobs[i].Partition}
		left = 0
		err := f.viewJobs(cmd.Context(), func(q jobdb.Queries) error {
			err := q.Decisions(filter, func(d *jobdb.Decision) error {
				copied := d.Decision
				if run := byID[d.RunID]; run != nil {
					h.Runs = append(h.Runs, suite.Recorded{Decision: &copied, Run: run})
				}
				return nil
			})
			return errors.Join(err, q.NotDecided(filter, func(*jobdb.NotDecided) error { left++; return nil }))
		})
		if err != nil {
			return nil, 0, err
		}
		if len(h.Runs) > 0 {
			return h, left, nil
		}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "no run of job %s was decided\n", f.job)
	return nil, 0, errFinding
}

// recordPolicies returns the policy paths relative to the test's directory, and writes the policies of a
// generation there if --policies is not given.
func (f *testRecordFlags) recordPolicies(cmd *cobra.Command, generation uint64) ([]string, error) {
	if f.policies != "" {
		from, err := filepath.Abs(f.out)
		if err != nil {
			return nil, fmt.Errorf("record: %w", err)
		}
		to, err := filepath.Abs(f.policies)
		if err != nil {
			return nil, fmt.Errorf("record: %w", err)
		}
		path, err := filepath.Rel(from, to)
		if err != nil {
			return nil, fmt.Errorf("record: %w", err)
		}
		return []string{filepath.ToSlash(path)}, nil
	}
	set, _, err := f.generation(cmd.Context(), generation)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("generation-%d.json", generation)
	files, err := suite.Files(set)
	if err != nil {
		return nil, err
	}
	// A YAML file of JSON documents with everything that was in force.
	var all []byte
	for _, file := range files {
		var pretty any
		if err := json.Unmarshal(file.Data, &pretty); err != nil {
			return nil, fmt.Errorf("record: %w", err)
		}
		data, err := json.MarshalIndent(pretty, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("record: %w", err)
		}
		all = append(append(append(all, "---\n"...), data...), '\n')
	}
	path := filepath.Join(f.out, "policies", strings.TrimSuffix(name, ".json")+".yaml")
	old, err := os.ReadFile(path)
	switch {
	case err == nil && string(old) == string(all):
	case err == nil:
		return nil, fmt.Errorf("record: %s already exists and contains other policies: choose another --out", path)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("record: %w", err)
	default:
		if err := writeNew(path, all); err != nil {
			return nil, fmt.Errorf("record: %w", err)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "wrote %s: the policies in force then\n", path)
	}
	return []string{"policies/" + filepath.Base(path)}, nil
}

// fileName turns a job id into a file name.
func fileName(job string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, job[:min(len(job), 100)])
}

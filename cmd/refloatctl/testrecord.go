package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/authoring/suite"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/query"
)

type testRecordFlags struct {
	deployment
	job, out, policies   string
	group, queue, jobSet string
}

func newTestRecord() *cobra.Command {
	var f testRecordFlags
	cmd := &cobra.Command{
		Use:   "record (--job ID | --group NAME) (--data DIR | --pulsar URL --job-db URL) --out DIR",
		Short: "Turn the history of a job or a group into a test",
		Long: `Turn the decided failures of a real job into a test file that expects the decisions
made then, and write the policies that made them beside it. The test is run before it
is kept: it passes as recorded.

With --group, the test is about a group of jobs: which members were submitted, started,
failed, succeeded or were cancelled, and what the group did about it.

With --policies PATH the test uses your policy files instead: it fails if they decide
differently (exit code 1), and is kept nevertheless.`,
		Example: `  refloatctl test record --job 01m7xn681y99tqr9907k6hqh4d --data .refloat-run --out incident
  refloatctl test incident -v
  refloatctl test record --job 01m7xn681y99tqr9907k6hqh4d --data .refloat-run --out my-policies/tests --policies my-policies
  refloatctl test record --group run-17 --queue ml --job-set trainings --data .refloat-run --out incident`,
		Args: noArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case f.job == "" && f.group == "":
				return usageError{errors.New("--job ID is required: `refloatctl get decisions --data DIR` lists jobs; or --group NAME")}
			case f.job != "" && f.group != "":
				return usageError{errors.New("--job and --group: choose one")}
			case f.group == "" && (f.queue != "" || f.jobSet != ""):
				return usageError{errors.New("--queue and --job-set need --group")}
			case f.out == "":
				return usageError{errors.New("--out DIR is required: where to write the test")}
			}
			if err := cmp.Or(f.checkLogs(), f.checkJobs()); err != nil {
				return err
			}
			return testRecord(cmd, f)
		},
	}
	cmd.Flags().StringVar(&f.job, "job", "", "id of the job")
	cmd.Flags().StringVar(&f.group, "group", "", "name of the group, in place of --job")
	cmd.Flags().StringVar(&f.queue, "queue", "", "queue of the group, if several have that name")
	cmd.Flags().StringVar(&f.jobSet, "job-set", "", "job set of the group, if several have that name")
	f.bind(cmd)
	cmd.Flags().StringVar(&f.out, "out", "", "directory to write to (required)")
	cmd.Flags().StringVar(&f.policies, "policies", "", "policy files to test (default: those that decided, written beside the test)")
	completeValues(cmd, &f.deployment)
	return cmd
}

func testRecord(cmd *cobra.Command, f testRecordFlags) error {
	of, read := "job "+f.job, f.jobHistory
	if f.group != "" {
		of, read = "group "+query.OneLine(f.group), f.groupHistory
	}
	h, left, err := read(cmd)
	if err != nil {
		return err
	}
	if h == nil || len(h.Decisions) == 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "no run of %s was decided\n", of)
		return errFinding
	}
	name, err := f.keep(cmd, cmp.Or(f.group, f.job), h)
	if err != nil {
		return err
	}
	if left > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s not decided and not included\n", plural.Of(left, "failed run was", "failed runs were"))
	}
	return test(cmd, testFlags{output: outputText}, []string{name})
}

// keep writes the test of a history and the policies of its decisions, and returns its name.
func (f *testRecordFlags) keep(cmd *cobra.Command, of string, h *suite.History) (string, error) {
	name := filepath.Join(f.out, fileName(of)+"_test.yaml")
	if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("record: %s already exists", name)
	}
	h.Paths = map[uint64][]string{}
	var policies []policyfile.File // to write
	for _, d := range h.Decisions {
		if h.Paths[d.Generation] != nil {
			continue
		}
		file, err := f.recordPolicies(cmd, d.Generation, h.Paths)
		if err != nil {
			return "", err
		}
		if file != nil {
			policies = append(policies, *file)
		}
	}
	data, err := suite.Record(h)
	if err != nil {
		return "", err
	}
	// Nothing is written that `test` or `lint` would refuse.
	if _, err := suite.Parse(policyfile.File{Name: name, Data: data}); err != nil {
		return "", fmt.Errorf("record: no test can say what happened to %s: %w", query.OneLine(of), err)
	}
	for _, file := range policies {
		if _, err := policyfile.Parse([]policyfile.File{file}); err != nil {
			return "", fmt.Errorf("record: the policies that decided cannot be written as a file: %w", err)
		}
	}
	for _, file := range policies {
		if err := writeNew(file.Name, file.Data); err != nil {
			return "", fmt.Errorf("record: %w", err)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "wrote %s: the policies in force then\n", file.Name)
	}
	if err := writeNew(name, data); err != nil {
		return "", fmt.Errorf("record: %w", err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "wrote %s: %s\n", name, plural.Of(len(h.Decisions), "failure"))
	return name, nil
}

// groupHistory reads a group's history from the job database.
func (f *testRecordFlags) groupHistory(cmd *cobra.Command) (h *suite.History, left int, err error) {
	h = &suite.History{}
	find := query.GroupKey{Queue: f.queue, JobSet: f.jobSet, Group: f.group}
	err = f.viewJobs(cmd.Context(), func(q jobdb.Queries) error {
		var err error
		if h.Group, err = find.Row(q); err != nil {
			return err
		}
		filter := jobdb.RecordFilter{Partition: &h.Group.Partition, Group: h.Group}
		err = errors.Join(
			q.Members(h.Group, func(j *jobdb.Job) error {
				copied := *j
				h.Members = append(h.Members, suite.MemberHistory{Job: &copied})
				return nil
			}),
			q.Decisions(filter, func(d *jobdb.Decision) error {
				copied := d.Decision
				h.Decisions = append(h.Decisions, &copied)
				return nil
			}),
			q.GroupRecords(filter, func(r *jobdb.GroupRecord) error {
				rec, err := r.Record()
				if c, ok := rec.(*chain.MemberChange); ok {
					h.Changes = append(h.Changes, c)
				}
				return err
			}))
		for i := range h.Members {
			m := &h.Members[i]
			err = errors.Join(err, q.Runs(m.Job.Partition, m.Job.JobID, func(r *jobdb.Run) error {
				copied := *r
				m.Runs = append(m.Runs, &copied)
				return nil
			}))
		}
		return err
	})
	return h, 0, f.asked(cmd, f.groupError(cmd.Context(), find, err))
}

// jobHistory reads the job's history from the job database; nil if no run of it was decided.
func (f *testRecordFlags) jobHistory(cmd *cobra.Command) (h *suite.History, left int, err error) {
	found, err := f.source(nil).FindJob(cmd.Context(), f.job)
	if err != nil {
		return nil, 0, f.asked(cmd, err)
	}
	for i := range found {
		job := found[i].Row
		h, left = &suite.History{Members: []suite.MemberHistory{{Job: job}}}, 0
		for k := range found[i].Runs {
			h.Members[0].Runs = append(h.Members[0].Runs, &found[i].Runs[k])
		}
		filter := jobdb.RecordFilter{JobID: job.JobID, Partition: &job.Partition}
		err := f.viewJobs(cmd.Context(), func(q jobdb.Queries) error {
			err := q.Decisions(filter, func(d *jobdb.Decision) error {
				copied := d.Decision
				if slices.ContainsFunc(found[i].Runs, func(r jobdb.Run) bool { return r.RunID == d.RunID }) {
					h.Decisions = append(h.Decisions, &copied)
				}
				return nil
			})
			return errors.Join(err, q.NotDecided(filter, func(*jobdb.NotDecided) error { left++; return nil }))
		})
		if err != nil || len(h.Decisions) > 0 {
			return h, left, err
		}
	}
	return nil, 0, nil
}

// recordPolicies adds the policy paths of a generation, relative to the test's directory. It returns the file to write there;
// nil: --policies is given, or the file is there.
func (f *testRecordFlags) recordPolicies(cmd *cobra.Command, generation uint64, paths map[uint64][]string) (*policyfile.File, error) {
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
		paths[generation] = []string{filepath.ToSlash(path)}
		return nil, nil
	}
	policies, err := f.source(nil).Generation(cmd.Context(), generation)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("generation-%d.json", generation)
	files, err := suite.Files(policies.Set)
	if err != nil {
		return nil, err
	}
	// A YAML file of JSON documents with everything that was in force, but the budgets: these held nothing back, and what they
	// say follows from other jobs too.
	var all []byte
	for _, file := range files {
		var pretty map[string]any
		if err := json.Unmarshal(file.Data, &pretty); err != nil {
			return nil, fmt.Errorf("record: %w", err)
		}
		if pretty["kind"] == policyfile.KindBudget {
			continue
		}
		data, err := json.MarshalIndent(pretty, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("record: %w", err)
		}
		all = append(append(append(all, "---\n"...), data...), '\n')
	}
	path := filepath.Join(f.out, "policies", strings.TrimSuffix(name, ".json")+".yaml")
	paths[generation] = []string{"policies/" + filepath.Base(path)}
	old, err := os.ReadFile(path)
	switch {
	case err == nil && string(old) == string(all):
		return nil, nil
	case err == nil:
		return nil, fmt.Errorf("record: %s already exists and contains other policies: choose another --out", path)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("record: %w", err)
	}
	return &policyfile.File{Name: path, Data: all}, nil
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

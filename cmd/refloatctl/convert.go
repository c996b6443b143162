package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/convert"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/query"
)

type convertFlags struct {
	client
	files  []string
	dir    string
	queue  string
	jobSet string
	strict bool
	force  bool
}

func newConvert() *cobra.Command {
	var f convertFlags
	cmd := &cobra.Command{
		Use:   "convert -f FILE...",
		Short: "Turn a Kubernetes Job, JobSet, Volcano Job or JobFlow into Armada jobs and policies",
		Long: `Turn manifests of Kubernetes Jobs (batch/v1), JobSets (jobset.x-k8s.io/v1alpha2), Volcano
Jobs (batch.volcano.sh/v1alpha1) and JobFlows with their JobTemplates
(flow.volcano.sh/v1alpha1, with the proposed retryPolicy) into a file for armadactl submit,
in which every pod is a job, and into the GroupPolicy and the RetryPolicies under which they
behave as before. Each queue that the manifests name has a file of its own.

The manifests are YAML or JSON, several in a file, or what kubectl get -o yaml prints; - is
stdin. Each field that is lost, or means something else, is one line on stderr: where it is,
what it was, what it is now, and why. What a server wrote (status, managedFields) is ignored.
A mistake in a manifest is an error, and then nothing is written.

Settings are never written: they are the operator's. Where manifests need more retries of a
job than settings permit, a line says so; --data or --server compares with the settings in
force, else they are taken to be the defaults.

Without -o, everything goes to stdout as YAML documents: first the jobs, then the policies.

Exit code 1 if there is an error; with --strict also for a field that is lost or changed.`,
		Example: `  kubectl get jobset training -o yaml | refloatctl convert -f - -o training
  refloatctl convert -f job.yaml -f jobset.yaml --queue ml --job-set monday -o out
  refloatctl convert -f job.yaml --strict > /dev/null`,
		Args: noArgument,
		RunE: func(cmd *cobra.Command, _ []string) error { return convertFiles(cmd, f) },
	}
	cmd.Flags().StringArrayVarP(&f.files, "filename", "f", nil, "file of manifests, or - for stdin; may be repeated (required)")
	cmd.Flags().StringVarP(&f.dir, "output", "o", "", "directory for jobs.yaml (of several queues: jobs-QUEUE.yaml) and policies/; default: everything to stdout")
	cmd.Flags().StringVar(&f.queue, "queue", "", "the queue of Armada, for all manifests; default: the one that each names, else default")
	cmd.Flags().StringVar(&f.jobSet, "job-set", "", "the job set; default: the name of the first manifest")
	cmd.Flags().BoolVar(&f.strict, "strict", false, "treat a field that is lost or changed as an error")
	f.bind(cmd)
	cmd.Flags().BoolVar(&f.force, "overwrite", false, "replace files that exist in the directory of -o")
	return cmd
}

func convertFiles(cmd *cobra.Command, f convertFlags) error {
	if len(f.files) == 0 {
		return usageError{errors.New("no manifest: pass -f FILE, or -f - for stdin")}
	}
	var files []convert.File
	for _, name := range f.files {
		file, err := manifest(cmd, name)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	permitted, err := f.maxRetries(cmd.Context())
	if err != nil {
		return err
	}
	r := convert.Convert(files, convert.Options{Queue: f.queue, JobSet: f.jobSet, MaxRetries: permitted})
	for _, n := range r.Notes {
		fmt.Fprintln(cmd.ErrOrStderr(), n)
	}
	switch {
	case r.Failed():
		fmt.Fprintln(cmd.ErrOrStderr(), "nothing was written: correct the errors first")
		return errFinding
	case f.strict && len(r.Notes) > 0:
		fmt.Fprintf(cmd.ErrOrStderr(), "nothing was written: with --strict, %s\n", plural.Of(len(r.Notes), "field that is lost or changed is an error", "fields that are lost or changed are errors"))
		return errFinding
	case len(r.Submits) == 0:
		fmt.Fprintln(cmd.ErrOrStderr(), "nothing was written: there is nothing to run")
		return nil
	case f.dir == "":
		return printConverted(cmd, r)
	}
	return writeConverted(cmd, f, r)
}

// maxRetries asks the deployment how many retries its settings permit; nil: no deployment is named.
func (f *convertFlags) maxRetries(ctx context.Context) (permitted *convert.MaxRetries, err error) {
	if f.data == "" && f.server == "" {
		return nil, nil
	}
	err = f.reading(ctx, func(ctx context.Context, c pb.PoliciesClient) error {
		list, err := c.List(ctx, &pb.ListRequest{Kind: policyfile.KindSettings})
		if err != nil {
			return err
		}
		set, err := query.SetOf(list.Resources)
		if err != nil {
			return err
		}
		permitted = &convert.MaxRetries{Global: set.GlobalMaxRetries(), Policy: set.PolicyMaxRetries()}
		return nil
	})
	return permitted, err
}

// maxManifest limits what is read of one file; convert says so if it is more than it takes.
const maxManifest = 17 << 20

func manifest(cmd *cobra.Command, name string) (convert.File, error) {
	if name == "-" {
		data, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxManifest))
		if err != nil {
			return convert.File{}, fmt.Errorf("read stdin: %w", err)
		}
		return convert.File{Name: "<stdin>", Data: data}, nil
	}
	in, err := os.Open(name)
	if err != nil {
		return convert.File{}, fmt.Errorf("read a manifest: %w", err)
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, maxManifest))
	if err != nil {
		return convert.File{}, fmt.Errorf("read a manifest: %w", err)
	}
	return convert.File{Name: name, Data: data}, nil
}

func printConverted(cmd *cobra.Command, r *convert.Result) error {
	out := cmd.OutOrStdout()
	for i := range r.Submits {
		if i > 0 {
			if _, err := io.WriteString(out, "---\n"); err != nil {
				return err
			}
		}
		if err := r.Submits[i].WriteYAML(out); err != nil {
			return err
		}
	}
	for _, p := range r.Policies {
		if _, err := fmt.Fprintf(out, "---\n%s", p.Data); err != nil {
			return err
		}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s. With -o DIR, they are files, and what to do next is printed\n", converted(r))
	return nil
}

func converted(r *convert.Result) string {
	jobs := 0
	for i := range r.Submits {
		jobs += len(r.Submits[i].Jobs)
	}
	return fmt.Sprintf("%s and %s of policies for %s, job set %s",
		plural.Of(jobs, "job", "jobs"), plural.Of(len(r.Policies), "file", "files"), queuesOf(r), r.Submits[0].JobSetID)
}

// queuesOf names the queues of the jobs.
func queuesOf(r *convert.Result) string {
	var names []string
	for i := range r.Submits {
		names = append(names, r.Submits[i].Queue)
	}
	if len(names) == 1 {
		return "queue " + names[0]
	}
	return "queues " + strings.Join(names, ", ")
}

func writeConverted(cmd *cobra.Command, f convertFlags, r *convert.Result) error {
	type file struct {
		name  string
		write func(io.Writer) error
	}
	policies := filepath.Join(f.dir, "policies")
	var files []file
	var jobs []string
	for i, name := range convert.SubmitFiles(r.Submits) {
		jobs = append(jobs, filepath.Join(f.dir, name))
		files = append(files, file{jobs[i], r.Submits[i].WriteYAML})
	}
	for _, p := range r.Policies {
		files = append(files, file{filepath.Join(policies, p.Name), func(w io.Writer) error {
			_, err := w.Write(p.Data)
			return err
		}})
	}
	for _, file := range files {
		if _, err := os.Lstat(file.name); err == nil && !f.force {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s already exists, nothing was written: choose another directory, or pass --overwrite\n", file.name)
			return errFinding
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("convert: %w", err)
		}
	}
	for _, file := range files {
		if f.force {
			if err := os.Remove(file.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("convert: %w", err)
			}
		}
		if err := writeNewBy(file.name, file.write); err != nil {
			return fmt.Errorf("convert: %w", err)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "wrote %s\n", file.name)
	}
	nextSteps(cmd.OutOrStdout(), policies, jobs, r)
	return nil
}

// nextSteps says how the policies come into force. Jobs select them by annotation, after those of their queue.
func nextSteps(out io.Writer, policies string, jobs []string, r *convert.Result) {
	var names []string
	for _, p := range r.Policies {
		for _, id := range p.IDs {
			if id.Kind == policyfile.KindPolicy {
				names = append(names, id.Name)
			}
		}
	}
	if len(names) > 3 {
		names = append(names[:3], "…")
	}
	fmt.Fprintf(out, "%s\n\n%s\n", converted(r), show.Bold(out, "Next"))
	step := 0
	addStep := func(format string, args ...any) {
		step++
		fmt.Fprintf(out, "  %d. "+format+"\n", append([]any{step}, args...)...)
	}
	addStep(`Put the policies in force: refloatctl apply -f %s --data DIR (or --server HOST:PORT), or copy them to
     the directory that --policies names. The jobs select %s by the annotation armadaproject.io/retry-policy,
     so no queue has to name them. What %s names itself comes first: its rules, and its defaultAction if it
     has one, decide before these. Use a queue whose policies leave these failures alone`, policies, strings.Join(names, ", "), queuesOf(r))
	addStep("armadactl submit %s. Once the group has ended, the same file runs it again, as a new group of that name;\n     to run it twice at once, convert with another --job-set", strings.Join(jobs, "; armadactl submit "))
	for i := range r.Submits {
		addStep("refloatctl get groups --queue %s --job-set %s --data DIR (or --job-db URL)", show.Quoted(r.Submits[i].Queue), show.Quoted(r.Submits[i].JobSetID))
	}
	fmt.Fprintf(out, `Groups need version 3 of the semantics, and success policies and readiness version 4; %d is the newest. Where an earlier build of Refloat has begun the logs, restart the
evaluators, or up, with --semantics %[1]d first
`, evaluator.SemanticsVersion)
}

package conformance

import (
	"fmt"

	"github.com/refloat/refloat/internal/convert"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// FromManifests converts manifests, and submits the jobs that they become, under their policies and settings that permit the
// retries for which these ask. The result's notes are for those who ask what was lost.
func FromManifests(files ...convert.File) (*Driver, *convert.Result, error) {
	r := convert.Convert(files, convert.Options{})
	if r.Failed() {
		for _, n := range r.Notes {
			if n.Kind == convert.Error {
				return nil, r, fmt.Errorf("convert: %s", n)
			}
		}
	}
	// The set as it is read from the files that are written.
	written := []policyfile.File{{Name: "settings of the operator", Data: []byte("{kind: RetrySettings, spec: {policyMaxRetries: 1000000}}")}}
	for _, f := range r.Policies {
		written = append(written, policyfile.File{Name: f.Name, Data: f.Data})
	}
	set, err := policyfile.Parse(written)
	if err != nil {
		return nil, r, fmt.Errorf("the policies: %w", err)
	}
	if len(r.Submits) != 1 {
		return nil, r, fmt.Errorf("jobs of %d queues: a driver has one", len(r.Submits))
	}
	submit := &r.Submits[0]
	d, err := New(set, submit.Queue, submit.JobSetID)
	if err != nil {
		return nil, r, err
	}
	var jobs []Job
	for i := range submit.Jobs {
		j := &submit.Jobs[i]
		job := Job{Annotations: j.Annotations}
		if s := j.PodSpec.TerminationGracePeriodSeconds; s != nil {
			job.GraceSeconds = *s
		}
		for k := range j.PodSpec.InitContainers {
			job.InitContainers = append(job.InitContainers, j.PodSpec.InitContainers[k].Name)
		}
		jobs = append(jobs, job)
	}
	return d, r, d.Submit(jobs...)
}

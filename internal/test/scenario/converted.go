package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/convert"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// Converted are the jobs of a manifest, and the policies that they select.
type Converted struct {
	convert.Result
	Names []string // of each job: that of the row's job that says what happens to it
}

// Convert converts the scenario's manifest as refloatctl convert does, with the scenario's queue and job set. The only change is
// that jobs have the annotations sim/… of the row's job whose Member names them.
func (s Scenario) Convert() (*Converted, error) {
	r := convert.Convert([]convert.File{{Name: "manifest", Data: []byte(s.Manifest)}}, convert.Options{Queue: s.Name, JobSet: s.Set()})
	for _, n := range r.Notes {
		if n.Kind == convert.Error {
			return nil, fmt.Errorf("convert: %s", n)
		}
	}
	c := &Converted{Result: *r}
	if len(c.Submits) != 1 {
		return nil, fmt.Errorf("convert: nothing to run")
	}
	jobs := c.Submits[0].Jobs
	for i := range jobs {
		a := maps.Clone(jobs[i].Annotations)
		j := slices.IndexFunc(s.Jobs, func(j Job) bool { return j.isMember(a) })
		if j < 0 {
			return nil, fmt.Errorf("no job says what happens to member %s", memberOf(a))
		}
		for key, value := range s.Jobs[j].Sim {
			a["sim/"+key] = value
		}
		jobs[i].Annotations = a
		c.Names = append(c.Names, s.Jobs[j].Name)
	}
	for _, j := range s.Jobs {
		if !slices.Contains(c.Names, j.Name) {
			return nil, fmt.Errorf("job %s is no member that the manifest has", j.Name)
		}
	}
	return c, nil
}

// memberOf names a job by its annotations: PART/REPLICA/INDEX.
func memberOf(annotations map[string]string) string {
	return strings.Join([]string{annotations[events.AnnotationPart], annotations[events.AnnotationReplica], annotations[events.AnnotationIndex]}, "/")
}

func (j Job) isMember(annotations map[string]string) bool {
	return j.Member != "" && strings.HasPrefix(memberOf(annotations)+"/", j.Member+"/")
}

// policies are the files of the policies, but for settings, which are the suite's.
func (c *Converted) policies() (files [][]byte, err error) {
	for _, f := range c.Policies {
		if slices.ContainsFunc(f.IDs, func(id policyfile.ID) bool { return id.Kind == policyfile.KindSettings }) {
			return nil, fmt.Errorf("%s changes the settings of the suite: lower the limits of the manifest", strconv.Quote(f.Name))
		}
		files = append(files, f.Data)
	}
	return files, nil
}

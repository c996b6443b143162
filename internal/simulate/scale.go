package simulate

import "slices"

// Scaled returns a generated workload whose jobs arrive load times as fast, and whose runs fail so many times as often.
func (w *Workload) Scaled(load, failures float64) *Workload {
	scaled := *w
	scaled.JobsPerHour *= load
	scaled.Kinds = slices.Clone(w.Kinds)
	for i := range scaled.Kinds {
		k := &scaled.Kinds[i]
		k.Failures = slices.Clone(k.Failures)
		for n := range k.Failures {
			k.Failures[n].scale(failures)
		}
	}
	return &scaled
}

// Scaled returns the cluster, with faults in which runs fail so many times as often.
func (c *Cluster) Scaled(failures float64) *Cluster {
	scaled := *c
	scaled.Faults = slices.Clone(c.Faults)
	for i := range scaled.Faults {
		scaled.Faults[i].scale(failures)
	}
	return &scaled
}

func (f *Failure) scale(by float64) {
	f.PerJob, f.PerRun, f.PerHour = min(1, f.PerJob*by), min(1, f.PerRun*by), f.PerHour*by
	for _, chances := range []*[]float64{&f.Again.SameNode, &f.Again.OtherNode} {
		*chances = slices.Clone(*chances)
		for i := range *chances {
			(*chances)[i] = min(1, (*chances)[i]*by)
		}
	}
}

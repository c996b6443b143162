package policy

import "slices"

// matchers are a rule's requirements on a failure, and the last one that is set, in the order of evaluation.
type matchers struct {
	Matchers
	last Matcher
}

// match returns the first matcher that does not hold, or NoMatcher if all hold, and then the container that
// decided: the one whose message matched, else the targeted one if its exit code or reason was evaluated, else "".
func (m *matchers) match(f *Failure) (failed Matcher, container string) {
	if m.Conditions != 0 {
		oom := false
		if m.Conditions.Has(OOMKilled) {
			oom, container = m.oomKilled(f)
		}
		if !oom && m.podConditions(f)&m.Conditions == 0 {
			return OnConditions, ""
		}
	}
	if m.ExitCodes.Asked {
		t := m.targeted(f)
		if t == nil || m.ExitCodes.lists(t.ExitCode) == m.ExitCodes.NotIn {
			return OnExitCodes, ""
		}
		container = t.Name
	}
	if m.Pattern != nil {
		c := m.speaking(f)
		if c == nil {
			return OnTerminationMessage, ""
		}
		container = c.Name
	}
	if m.Categories != nil && !slices.Contains(m.Categories, f.Category) {
		return OnFailureCategory, ""
	}
	if m.Subcategories != nil && !slices.Contains(m.Subcategories, f.Subcategory) {
		return OnFailureSubcategory, ""
	}
	return NoMatcher, container
}

// sees reports whether the rule considers this container.
func (m *matchers) sees(c *Container) bool {
	return (m.IncludeInitContainers || !c.Init) && (m.ContainerName == "" || m.ContainerName == c.Name)
}

// targeted returns the first container that the rule considers and that failed.
func (m *matchers) targeted(f *Failure) *Container {
	for i := range f.Containers {
		if c := &f.Containers[i]; c.ExitCode != 0 && m.sees(c) {
			return c
		}
	}
	return nil
}

// speaking returns the first container that the rule considers and whose message matches. An empty message never
// does.
func (m *matchers) speaking(f *Failure) *Container {
	for i := range f.Containers {
		if c := &f.Containers[i]; c.Message != "" && m.sees(c) && m.Pattern.re.MatchString(c.Message) {
			return c
		}
	}
	return nil
}

// oomKilled reports whether OOMKilled holds for this rule, and by which container. The pod's own reason is used
// only if no container is reported or named.
func (m *matchers) oomKilled(f *Failure) (bool, string) {
	if t := m.targeted(f); t != nil && t.Reason == "OOMKilled" {
		return true, t.Name
	}
	return f.PodOOM && len(f.Containers) == 0 && m.ContainerName == "", ""
}

// podConditions returns the conditions of the pod and the run that the rule considers: none if it names a
// container.
func (m *matchers) podConditions(f *Failure) Conditions {
	if m.ContainerName != "" {
		return 0
	}
	return f.Conditions &^ Conditions(0).With(OOMKilled)
}

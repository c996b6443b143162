package policy

import (
	"regexp"
	"slices"
)

// matchers is what a rule asks of a failure (SEMANTICS 4): all that is set must
// hold, and within a list one is enough.
type matchers struct {
	last Matcher // the last one set, in the order in which they are tried

	conditions    Conditions // none: not asked
	operator      operator   // noOperator: not asked
	codes         []exitCode // sorted
	pattern       *regexp.Regexp
	pieces        []string // of which a message that matches has one; none: not known
	categories    []label
	subcategories []label

	containerName         string // "": any
	includeInitContainers bool
}

// match returns the first matcher that does not hold, NoMatcher when all do,
// and then the container that decided: the one whose message matched, else the
// targeted one if its exit code or reason was asked for, else "".
func (m *matchers) match(f *Failure) (failed Matcher, container string) {
	if m.conditions != 0 {
		oom := false
		if m.conditions.Has(OOMKilled) {
			oom, container = m.oomKilled(f)
		}
		if !oom && m.podConditions(f)&m.conditions == 0 {
			return OnConditions, ""
		}
	}
	if m.operator != noOperator {
		t := m.targeted(f)
		if t == nil || m.lists(t.ExitCode) != (m.operator == in) {
			return OnExitCodes, ""
		}
		container = t.Name
	}
	if m.pattern != nil {
		c := m.speaking(f)
		if c == nil {
			return OnTerminationMessage, ""
		}
		container = c.Name
	}
	if m.categories != nil && !slices.Contains(m.categories, label(f.Category)) {
		return OnFailureCategory, ""
	}
	if m.subcategories != nil && !slices.Contains(m.subcategories, label(f.Subcategory)) {
		return OnFailureSubcategory, ""
	}
	return NoMatcher, container
}

// lists says whether a code is among those of the rule.
func (m *matchers) lists(code int32) bool {
	_, found := slices.BinarySearch(m.codes, exitCode(code))
	return found
}

// sees says whether the rule looks at this container at all.
func (m *matchers) sees(c *Container) bool {
	return (m.includeInitContainers || !c.Init) && (m.containerName == "" || m.containerName == c.Name)
}

// targeted returns the first container that the rule sees and that failed.
func (m *matchers) targeted(f *Failure) *Container {
	for i := range f.Containers {
		if c := &f.Containers[i]; c.ExitCode != 0 && m.sees(c) {
			return c
		}
	}
	return nil
}

// speaking returns the first container that the rule sees and whose message
// matches. An empty message never does.
func (m *matchers) speaking(f *Failure) *Container {
	for i := range f.Containers {
		if c := &f.Containers[i]; c.Message != "" && m.sees(c) && m.pattern.MatchString(c.Message) {
			return c
		}
	}
	return nil
}

// oomKilled says whether OOMKilled holds for this rule, and by which container.
// The pod's own reason counts only where no container is reported or asked for.
func (m *matchers) oomKilled(f *Failure) (bool, string) {
	if t := m.targeted(f); t != nil && t.Reason == "OOMKilled" {
		return true, t.Name
	}
	return f.PodOOM && len(f.Containers) == 0 && m.containerName == "", ""
}

// podConditions returns the conditions of the pod and the run that the rule can
// see: none when it names a container.
func (m *matchers) podConditions(f *Failure) Conditions {
	if m.containerName != "" {
		return 0
	}
	return f.Conditions &^ Conditions(0).With(OOMKilled)
}

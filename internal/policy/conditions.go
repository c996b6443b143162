package policy

import (
	"fmt"
	"strings"
)

// Conditions is a set of Condition. As a Requirement, one of them must hold.
type Conditions uint16

// Has reports whether the set contains c.
func (s Conditions) Has(c Condition) bool { return s&(1<<c) != 0 }

// With returns the set with c.
func (s Conditions) With(c Condition) Conditions { return s | 1<<c }

// list returns the conditions in the set.
func (s Conditions) list() []Condition {
	var all []Condition
	for c := OOMKilled; c <= LeaseExpired; c++ {
		if s.Has(c) {
			all = append(all, c)
		}
	}
	return all
}

// names returns the names of the conditions in the set.
func (s Conditions) names() []string {
	var names []string
	for _, c := range s.list() {
		names = append(names, c.String())
	}
	return names
}

// ofLease holds the conditions of a run whose lease was returned or expired. The error of such a run is not the
// pod's.
const (
	ofLease = Conditions(1<<Unschedulable | 1<<LeaseReturned | 1<<LeaseExpired)
	ofPod   = Conditions(1<<OOMKilled | 1<<Evicted)
)

// Matcher returns OnConditions.
func (s Conditions) Matcher() Matcher { return OnConditions }

func (s Conditions) holds(scope *Scope, f *Failure) (by *Container, ok bool) {
	if s.Has(OOMKilled) {
		if by, ok = scope.oomKilled(f); ok {
			return by, true
		}
	}
	return nil, scope.podConditions(f)&s != 0
}

// oomKilled reports whether OOMKilled holds for this rule, and by which container. The pod's own reason is used
// only if no container is reported or named.
func (s *Scope) oomKilled(f *Failure) (by *Container, ok bool) {
	if t := s.targeted(f); t != nil && t.Reason == "OOMKilled" {
		return t, true
	}
	return nil, f.PodOOM && len(f.Containers) == 0 && s.ContainerName == ""
}

// podConditions returns the conditions of the pod and the run that the rule considers: none if it names a
// container.
func (s *Scope) podConditions(f *Failure) Conditions {
	if s.ContainerName != "" {
		return 0
	}
	return f.Conditions &^ Conditions(0).With(OOMKilled)
}

func (s Conditions) why(scope *Scope, f *Failure) string {
	have := scope.podConditions(f)
	if _, oom := scope.oomKilled(f); oom {
		have = have.With(OOMKilled)
	}
	asked := "[" + strings.Join(s.names(), " ") + "]"
	switch names := have.names(); {
	case scope.ContainerName != "" && s.Has(OOMKilled):
		return fmt.Sprintf("container %q was not OOMKilled", scope.ContainerName)
	case scope.ContainerName != "":
		return asked + " never holds for a container, and the rule names one"
	case len(names) == 0:
		return "no condition, so none of " + asked
	case len(names) == 1:
		return fmt.Sprintf("condition %s not among %s", names[0], asked)
	default:
		return fmt.Sprintf("conditions %s not among %s", strings.Join(names, ", "), asked)
	}
}

func (s Conditions) covers(scope *Scope, other Requirement, t *Scope) bool {
	for _, c := range other.(Conditions).list() {
		switch {
		case c != OOMKilled && t.ContainerName != "": // it cannot hold there
		case !s.Has(c), c == OOMKilled && *scope != *t, c != OOMKilled && scope.ContainerName != "":
			return false
		}
	}
	return true
}

func (s Conditions) disjoint(_ *Scope, other Requirement, _ *Scope) bool {
	o := other.(Conditions)
	return s&^ofLease == 0 && o&^ofLease == 0 && s&o == 0
}

func (s Conditions) never(scope *Scope) string {
	if scope.ContainerName != "" && !s.Has(OOMKilled) {
		return "conditions of the pod never hold for a single container, and the rule names one"
	}
	return ""
}

func (s Conditions) origins() origins {
	var possible origins
	if s&ofPod != 0 {
		possible |= fromPod
	}
	if s&ofLease != 0 {
		possible |= fromLease
	}
	if s&^(ofPod|ofLease) != 0 {
		possible = fromAnywhere
	}
	return possible
}

func (s Conditions) split() []Requirement {
	var parts []Requirement
	for _, c := range s.list() {
		parts = append(parts, Conditions(0).With(c))
	}
	return parts
}

package scheduling

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Limits are what holds for all jobs at submission.
type Limits struct {
	// MaximumGracePeriod is the longest graceful termination period that a job may ask for.
	MaximumGracePeriod time.Duration
	// DefaultDeadline is how long a job may run that sets no deadline itself; zero means that it may run forever.
	DefaultDeadline time.Duration
}

// Times are how long a job may run, and how long it may take to exit. Nil is not set.
type Times struct {
	// GracePeriod is the graceful termination period: the time between SIGTERM and SIGKILL.
	GracePeriod *time.Duration
	// Deadline is the maximum run time, ActiveDeadlineSeconds in the podspec.
	Deadline *time.Duration
}

// minimumGracePeriod is positive because Kubernetes takes 0 s for a forced deletion.
const minimumGracePeriod = time.Second

// Submit validates what a job sets, and fills in defaults.
func (l Limits) Submit(t Times) (Times, error) {
	grace := minimumGracePeriod
	if t.GracePeriod != nil && *t.GracePeriod != 0 {
		grace = *t.GracePeriod
	}
	if grace < minimumGracePeriod || grace > max(minimumGracePeriod, l.MaximumGracePeriod) {
		return Times{}, fmt.Errorf("graceful termination period of %v: must be 0s, or between %v and %v", grace, minimumGracePeriod, l.MaximumGracePeriod)
	}
	deadline := t.Deadline
	switch {
	case deadline == nil && l.DefaultDeadline > 0:
		deadline = &l.DefaultDeadline
	case deadline != nil && *deadline <= 0:
		return Times{}, fmt.Errorf("deadline of %v: must be positive", *deadline)
	}
	return Times{&grace, deadline}, nil
}

// The annotations that make a job a member of a gang.
const (
	AnnotationGangID                  = "armadaproject.io/gangId"
	AnnotationGangCardinality         = "armadaproject.io/gangCardinality"
	AnnotationGangMinimumCardinality  = "armadaproject.io/gangMinimumCardinality"
	AnnotationGangNodeUniformityLabel = "armadaproject.io/gangNodeUniformityLabel"
)

// ParseGang reads the gang of a job from its annotations. A job without a gang ID is a gang of its own.
func ParseGang(annotations map[string]string) (Gang, error) {
	g := Gang{ID: annotations[AnnotationGangID], NodeUniformityLabel: annotations[AnnotationGangNodeUniformityLabel]}
	cardinality, ok := annotations[AnnotationGangCardinality]
	minimum, hasMinimum := annotations[AnnotationGangMinimumCardinality]
	if g.ID == "" {
		if ok || hasMinimum || g.NodeUniformityLabel != "" {
			return Gang{}, errors.New("annotations of a gang, but no " + AnnotationGangID)
		}
		return Gang{}, nil
	}
	var err error
	if g.Cardinality, err = strconv.Atoi(cardinality); err != nil || g.Cardinality < 1 {
		return Gang{}, fmt.Errorf("%s is %q: must be a number, at least 1", AnnotationGangCardinality, cardinality)
	}
	g.MinimumCardinality = g.Cardinality
	if !hasMinimum {
		return g, nil
	}
	if g.MinimumCardinality, err = strconv.Atoi(minimum); err != nil || g.MinimumCardinality < 1 || g.MinimumCardinality > g.Cardinality {
		return Gang{}, fmt.Errorf("%s is %q: must be a number between 1 and the cardinality %d", AnnotationGangMinimumCardinality, minimum, g.Cardinality)
	}
	return g, nil
}

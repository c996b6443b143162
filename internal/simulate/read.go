package simulate

import (
	_ "embed" // the defaults
	"fmt"

	"go.yaml.in/yaml/v4"
)

// The files that apply when none is given.
var (
	//go:embed default/cluster.yaml
	defaultCluster string
	//go:embed default/workload.yaml
	defaultWorkload string
)

// DefaultCluster returns the text of the cluster that applies when none is given.
func DefaultCluster() string { return defaultCluster }

// DefaultWorkload returns the text of the workload that applies when none is given.
func DefaultWorkload() string { return defaultWorkload }

// ReadCluster reads a cluster file. Unknown fields are errors.
func ReadCluster(text []byte) (*Cluster, error) {
	c := &Cluster{}
	if err := yaml.Load(text, c, yaml.WithKnownFields()); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	return c, nil
}

// ReadWorkload reads a workload file. Unknown fields are errors.
func ReadWorkload(text []byte) (*Workload, error) {
	w := &Workload{}
	if err := yaml.Load(text, w, yaml.WithKnownFields()); err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	return w, nil
}

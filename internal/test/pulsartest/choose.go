package pulsartest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// choose decides how to run the broker. It downloads nothing if the machine has what one of the ways needs.
func choose(ctx context.Context, o Options) (Way, error) {
	noProcess := checkHome(o.Home)
	if o.Way == Process {
		return Process, missing(noProcess)
	}
	noImage := checkImage(ctx)
	switch {
	case noImage == nil:
		return Container, nil
	case o.Way == "" && noProcess == nil:
		return Process, nil
	case errors.Is(noImage, errPull):
		return Container, nil
	case o.Way == Container:
		return "", missing(noImage)
	}
	return "", missing(errors.Join(noImage, noProcess))
}

func missing(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: run hack/parts.sh, which gets one: %w", ErrMissing, err)
}

// checkHome says what a child process would lack.
func checkHome(home string) error {
	if _, err := os.Stat(filepath.Join(home, "bin", "pulsar")); err != nil {
		return fmt.Errorf("no Pulsar distribution in REFLOAT_PULSAR_HOME or the cache: %w", err)
	}
	if os.Getenv("JAVA_HOME") != "" {
		return nil
	}
	if _, err := exec.LookPath("java"); err != nil {
		return fmt.Errorf("no Java for the Pulsar distribution: %w", err)
	}
	return nil
}

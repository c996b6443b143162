package pulsartest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Way is how a broker runs.
type Way string

// The ways. The zero value takes what the machine has.
const (
	Container Way = "container" // an image, through Docker
	Process   Way = "process"   // a child process, with Java
)

// environment is what the environment asks for.
type environment struct {
	way      Way
	home     string // of the distribution
	url      string // of a running broker
	adminURL string
	required bool // a test without a broker fails
}

func readEnvironment() (environment, error) {
	e := environment{
		way:      Way(os.Getenv("REFLOAT_TEST_BROKER")),
		home:     os.Getenv("REFLOAT_PULSAR_HOME"),
		url:      os.Getenv("REFLOAT_TEST_PULSAR"),
		adminURL: os.Getenv("REFLOAT_TEST_PULSAR_ADMIN"),
		required: os.Getenv("REQUIRE_INTEGRATION") == "1",
	}
	switch {
	case e.way != "" && e.way != Container && e.way != Process:
		return e, fmt.Errorf("REFLOAT_TEST_BROKER=%q: want %q or %q", e.way, Container, Process)
	case (e.url == "") != (e.adminURL == ""):
		return e, fmt.Errorf("REFLOAT_TEST_PULSAR=%q and REFLOAT_TEST_PULSAR_ADMIN=%q: set both or neither", e.url, e.adminURL)
	}
	if e.home == "" {
		if cache, err := os.UserCacheDir(); err == nil {
			e.home = filepath.Join(cache, "refloat", "pulsar-"+Version)
		}
	}
	return e, nil
}

// dockerDefaults configures the container library: ports are on loopback, even if this machine looks like a
// container, and its reaper, which needs another image, is not needed if our guard can replace it.
func dockerDefaults() error {
	settings := map[string]string{"TESTCONTAINERS_HOST_OVERRIDE": loopback}
	if dockerCommand() {
		settings["TESTCONTAINERS_RYUK_DISABLED"] = "true"
	}
	for key, value := range settings {
		if _, set := os.LookupEnv(key); set {
			continue
		}
		if err := os.Setenv(key, value); err != nil {
			return err
		}
	}
	return nil
}

// dockerCommand says whether a guard can remove a container.
func dockerCommand() bool {
	_, err := exec.LookPath("docker")
	return err == nil
}

package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestDeployment: where a command looks, by its flags and the environment.
func TestDeployment(t *testing.T) {
	const cluster = "pulsar://h:6650"
	for _, c := range []struct {
		name, env, args string
		data            string
		onPulsar        bool
		logs, jobs      string // what the usage error says; empty: there is none
	}{
		{name: "nothing", logs: "--data DIR is required", jobs: "--data DIR is required"},
		{name: "directory", args: "--data d", data: "d"},
		{name: "database alone", args: "--job-db u", logs: "--data DIR is required"},
		{name: "cluster", args: "--pulsar " + cluster + " --job-db u", onPulsar: true},
		{name: "cluster without database", args: "--pulsar " + cluster, onPulsar: true, jobs: "--job-db URL is required"},
		{name: "both", args: "--data d --pulsar " + cluster, data: "d", onPulsar: true, logs: "--data and --pulsar", jobs: "--data and --pulsar"},
		{name: "environment", env: "REFLOAT_PULSAR=" + cluster + " REFLOAT_JOB_DB=u", onPulsar: true},
		{name: "environment of an evaluator", env: "REFLOAT_DATA=state REFLOAT_PULSAR=" + cluster + " REFLOAT_JOB_DB=u", onPulsar: true},
		{name: "the command line wins with a directory", env: "REFLOAT_PULSAR=" + cluster, args: "--data d", data: "d"},
		{name: "the command line wins with a cluster", env: "REFLOAT_DATA=d", args: "--pulsar " + cluster + " --job-db u", onPulsar: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for pair := range strings.FieldsSeq(c.env) {
				name, value, _ := strings.Cut(pair, "=")
				t.Setenv(name, value)
			}
			var d deployment
			cmd := &cobra.Command{Use: "test", RunE: func(*cobra.Command, []string) error { return nil }}
			d.bind(cmd)
			cmd.SetArgs(strings.Fields(c.args))
			if err := cmd.ExecuteContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			if d.data != c.data || d.onPulsar() != c.onPulsar {
				t.Errorf("data %q, on Pulsar %v; want %q, %v", d.data, d.onPulsar(), c.data, c.onPulsar)
			}
			for _, got := range []struct {
				err  error
				want string
			}{{d.checkLogs(), c.logs}, {d.checkJobs(), c.jobs}} {
				if (got.err == nil) != (got.want == "") || got.err != nil && !strings.HasPrefix(got.err.Error(), got.want) {
					t.Errorf("%v, want %q", got.err, got.want)
				}
			}
		})
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/refloat/refloat/cmd/internal/pulsarflags"
	"github.com/refloat/refloat/cmd/internal/settings"
	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/cmd/internal/text"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/query"
)

// deployment names the logs of a deployment and its job database: a data directory, or Pulsar with a separate job
// database. Some commands need only the job database.
type deployment struct {
	data   string
	jobDB  string             // URL; empty: SQLite in the data directory
	pulsar *pulsarflags.Flags // nil: the command has no Pulsar flags
	line   []string           // flags given on the command line
	remote *client            // nil: the command does not ask servers
	cmd    *cobra.Command     // with the flags of remote
	// warnings is where viewJobs says that the job database is behind the logs, once; nil: they were compared, or are not to be.
	warnings io.Writer
}

// bindServer adds the flags that name a server whose API answers instead.
func (d *deployment) bindServer(cmd *cobra.Command) {
	d.remote, d.cmd = &client{}, cmd
	d.remote.bindServer(cmd)
	cmd.Flags().Lookup("server").Usage = "addresses of APIs to ask instead, separated by commas: the --api of up or evaluators (also REFLOAT_SERVER)"
}

// onServer reports whether a server answers: --server is given, or REFLOAT_SERVER and nothing else.
func (d *deployment) onServer() bool {
	return d.remote != nil && d.remote.server != "" && (d.serverOnLine() || d.data == "" && d.jobDB == "" && !d.onPulsar())
}

// serverOnLine reports whether --server is on the command line: what the environment or a file sets has changed, too.
func (d *deployment) serverOnLine() bool {
	if d.pulsar == nil { // there are no settings
		return d.cmd.Flags().Changed("server")
	}
	return d.named("server")
}

// checkServer returns a usage error if a server and something else are to answer.
func (d *deployment) checkServer() error {
	for _, name := range []string{"data", "job-db", pulsarflags.URL} {
		if d.named(name) {
			return usageError{fmt.Errorf("--server and --%s name two places to ask: give only one", name)}
		}
	}
	return nil
}

// answers returns where questions are asked; bar shows what takes long, and may be nil.
func (d *deployment) answers(bar *show.Progress) query.Answers {
	if d.onServer() {
		return d.remote.questions()
	}
	return d.source(bar)
}

// bind adds the flags of a deployment, which can also be set by the environment or a file.
func (d *deployment) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&d.data, "data", "", "data directory of a deployment on one machine (also REFLOAT_DATA)")
	d.bindJobDB(cmd)
	d.bindPulsar(cmd)
}

// bindPulsar adds all flags except --data and --job-db.
func (d *deployment) bindPulsar(cmd *cobra.Command) {
	d.pulsar = pulsarflags.Bind(cmd)
	settings.Bind(cmd)
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		d.warnings = cmd.ErrOrStderr()
		cmd.Flags().Visit(func(f *pflag.Flag) { d.line = append(d.line, f.Name) })
		if err := loadSettings(cmd); err != nil {
			return err
		}
		data, cluster := d.named("data"), d.named(pulsarflags.URL)
		switch {
		case data && !cluster:
			return cmd.Flags().Set(pulsarflags.URL, "") // the command line takes precedence
		case d.onPulsar() && !data:
			d.data = "" // on Pulsar, it holds an evaluator's state
		}
		return nil
	}
}

// hidePulsar hides the cluster flags in the help of a command that reads only the job database. The command still
// accepts them, so that one set of flags or one settings file works for all commands.
func hidePulsar(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if strings.HasPrefix(f.Name, pulsarflags.URL) {
			f.Hidden = true
		}
	})
}

// bindJobs adds the flags of a command that asks a server or the job database.
func (d *deployment) bindJobs(cmd *cobra.Command) {
	d.bind(cmd)
	hidePulsar(cmd)
	d.bindServer(cmd)
}

// named reports whether the command line has one of the flags: what else names a deployment may be of other commands.
func (d *deployment) named(flags ...string) bool {
	return slices.ContainsFunc(flags, func(flag string) bool { return slices.Contains(d.line, flag) })
}

// onPulsar reports whether the logs are topics.
func (d *deployment) onPulsar() bool { return d.pulsar != nil && d.pulsar.Given() }

// checkLogs returns a usage error if the flags do not name the logs.
func (d *deployment) checkLogs() error {
	switch {
	case d.data != "" && d.onPulsar():
		return usageError{errors.New("--data and --pulsar name two deployments: give only one")}
	case d.data == "" && !d.onPulsar():
		return usageError{errors.New("--data DIR is required: the data directory of `refloatctl up`; or --pulsar URL for a deployment on Pulsar")}
	}
	return nil
}

// checkJobs returns a usage error if the flags do not name the job database.
func (d *deployment) checkJobs() error {
	switch {
	case d.onServer():
		return d.checkServer()
	case d.data != "" && d.onPulsar():
		return d.checkLogs()
	case d.jobDB == "" && d.onPulsar():
		return usageError{errors.New("--job-db URL is required: on Pulsar, jobs are in the job database that the ingesters write")}
	case d.jobDB == "" && d.data == "":
		text := "--data DIR is required: the data directory of `refloatctl up`; or --job-db URL for the job database that the ingesters write"
		if d.remote != nil {
			text += "; or --server HOST:PORT, the API of up or an evaluator"
		}
		return usageError{errors.New(text)}
	}
	return nil
}

// readLogs opens the logs during a call. Readers end at the end of each log.
func (d *deployment) readLogs(ctx context.Context, use func(audit.Logs) error) error {
	if !d.onPulsar() {
		logs, err := app.Dir(d.data).OpenLogs(0, app.Access{})
		if err != nil {
			return err
		}
		recorded, err := logs.Recorded()
		if err == nil {
			err = use(recorded)
		}
		return errors.Join(err, logs.Close())
	}
	return d.readPulsar(ctx, func(_ *pulsarlog.Cluster, logs audit.Logs) error { return use(logs) })
}

func (d *deployment) readPulsar(ctx context.Context, use func(*pulsarlog.Cluster, audit.Logs) error) error {
	return withCluster(ctx, d.pulsar, func(cluster *pulsarlog.Cluster, _ pulsarlog.Config) error {
		logs, err := app.ReadPulsar(cluster, app.Pulsar{Events: d.pulsar.Events, Decisions: d.pulsar.Decisions, Policies: d.pulsar.Policies})
		if err != nil {
			return err
		}
		return use(cluster, logs)
	})
}

// readPolicies does the same for the policies log alone.
func (d *deployment) readPolicies(ctx context.Context, use func(eventlog.Topic) error) error {
	if !d.onPulsar() {
		return d.readLogs(ctx, func(logs audit.Logs) error { return use(logs.Policies) })
	}
	return withCluster(ctx, d.pulsar, func(cluster *pulsarlog.Cluster, _ pulsarlog.Config) error {
		topic, err := app.ReadTopic(cluster, d.pulsar.Policies)
		if err != nil {
			return err
		}
		return use(topic)
	})
}

// source returns what questions are answered from; bar shows what takes long, and may be nil.
func (d *deployment) source(bar *show.Progress) *query.Source {
	s := &query.Source{Jobs: d.viewJobs}
	if bar != nil {
		s.Progress = func(text string) { bar.Update("%s", text) }
	}
	if d.data == "" && !d.onPulsar() {
		return s
	}
	s.Logs = d.readLogs
	s.Policies = func(ctx context.Context, use func(*policylog.Store) error) error {
		return d.readPolicies(ctx, func(topic eventlog.Topic) error { return withStore(topic, use) })
	}
	return s
}

// withStore opens the store of a policies log during a call.
func withStore(topic eventlog.Topic, use func(*policylog.Store) error) error {
	store, err := policylog.OpenStore(topic, nil, time.Now)
	if err != nil {
		return err
	}
	defer store.Close()
	return use(store)
}

const jobDBHelp = "job database: sqlite:///path or postgres://user@host:5432/database, best with the password in PGPASSWORD or ~/.pgpass (default: in the data directory)"

func (d *deployment) bindJobDB(cmd *cobra.Command) {
	cmd.Flags().StringVar(&d.jobDB, "job-db", "", jobDBHelp)
	settings.Secret(cmd, "job-db")
}

func (d deployment) url() string {
	if d.jobDB != "" {
		return d.jobDB
	}
	return app.Dir(d.data).JobDBURL()
}

// String formats the deployment as flags, without passwords.
func (d deployment) String() string {
	if d.onServer() {
		return "--server " + d.remote.server
	}
	flags := ""
	if d.data != "" {
		flags = "--data " + show.Quoted(d.data)
	}
	if d.onPulsar() {
		flags = "--pulsar " + show.Quoted(d.pulsar.ServiceURL())
	}
	if d.jobDB == "" {
		return flags
	}
	if flags != "" {
		flags += " "
	}
	u, err := url.Parse(d.jobDB)
	if err != nil {
		return flags + "--job-db …"
	}
	q := u.Query()
	for _, name := range []string{"password", "sslpassword"} {
		if q.Has(name) {
			q.Set(name, "xxxxx")
			u.RawQuery = q.Encode()
		}
	}
	return flags + "--job-db " + u.Redacted()
}

// place is where commands look that are printed to be copied.
func (d *deployment) place() text.Place {
	return text.Place{Flags: d.String(), Policies: d.data != "" || d.onPulsar() || d.onServer()}
}

// viewJobs reads the job database. The first time, it is compared with the logs of the data directory, if there is one.
func (d *deployment) viewJobs(ctx context.Context, read func(jobdb.Queries) error) error {
	r, err := app.ReadJobDB(ctx, d.url())
	if err != nil {
		return damageAdvice(err)
	}
	defer r.Close()
	if d.data != "" && d.warnings != nil {
		warning, err := app.Dir(d.data).Compare(ctx, r)
		if err != nil {
			return damageAdvice(err)
		}
		if warning != "" {
			fmt.Fprintln(d.warnings, "warning: "+query.OneLine(warning))
		}
		d.warnings = nil
	}
	return damageAdvice(r.View(ctx, read))
}

// damageAdvice adds how a damaged job database is repaired.
func damageAdvice(err error) error {
	if !errors.Is(err, jobdb.ErrDamaged) {
		return err
	}
	return fmt.Errorf("%w; the process that writes it (up or ingester) will set it aside and rebuild it from the logs", err)
}

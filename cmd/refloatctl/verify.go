package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/refloat/refloat/cmd/internal/text"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/pulsarflags"
	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/archive"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/report"
	"github.com/refloat/refloat/internal/checkpoint/storage"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
)

type verifyFlags struct {
	logsFlags
	output, checkpoints   string
	sign, check, expected string
	waiting               bool
	parallel              int
}

func newVerify() *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use:   "verify (--data DIR | --log DIR --decisions DIR | --archive DIR | --pulsar URL | --server HOST:PORT | --check-signature FILE)",
		Short: "Check that a decision log follows from its input, byte for byte",
		Long: `Derive everything in a decision log again, by the policies and the versions of the
semantics that it names, and compare every byte: no envelope is missing, each names the
hash of the one before, and every failed run is decided once, as it would be decided
again. Partitions are verified in parallel. An envelope is one message of the decision
log, an epoch the time of one owner of the partition, and the running hash one over all
that was decided: equal hashes mean equal histories.

The logs are in a data directory, in three directories, in an archive, or topics on
Pulsar. What retention has deleted from the logs is read from an archive with --archive.
With --checkpoints, each partition begins at its newest checkpoint, which is taken as
given. While evaluators run, the newest messages have no answer yet: use --allow-waiting.

With --server, a server verifies its own logs, within 100 seconds and one verification at
a time; --timeout says how long to wait for it. Nobody but the server has seen the logs
then, so that report is not signed.

A difference is named with its place and both readings: a record that was changed,
dropped, doubled, added or reordered, an envelope, policies, input. --sign writes the
report with a signature, for others to check with --check-signature, also against the
logs as they are then.

Exit codes: 0 all of it was verified, 1 a difference was found or something could not be
verified, 2 usage, 3 the logs could not be read.`,
		Example: `  refloatctl verify --data .refloat-run
  refloatctl verify --pulsar pulsar://pulsar:6650 --pulsar-admin http://pulsar:8080 --archive /backup/refloat
  openssl genpkey -algorithm ed25519 -out key.pem
  refloatctl verify --data .refloat-run --sign key.pem > report.json
  refloatctl verify --check-signature report.json --public-key key.pub --data .refloat-run`,
		Args: noArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case f.check != "" && f.sign != "":
				return usageError{errors.New("--sign and --check-signature are two commands: give only one")}
			case f.check == "" && f.expected != "":
				return usageError{errors.New("--public-key needs --check-signature")}
			case f.check != "" && f.checkpoints != "":
				return usageError{errors.New("--check-signature verifies from the beginning: omit --checkpoints")}
			case f.parallel < 1:
				return usageError{fmt.Errorf("--parallel %d: want 1 or more", f.parallel)}
			case f.onServer() && f.sign != "":
				return usageError{errors.New("--sign: a signature says that the logs were verified here, and --server lets the server verify them: give the logs instead, for instance with --pulsar")}
			case f.onServer() && f.checkpoints != "":
				return usageError{errors.New("--checkpoints: a server verifies from the beginning: omit it, or give the logs instead of --server")}
			case f.check != "" && !f.given():
				return checkSignature(cmd, f)
			}
			if err := f.checkGiven(); err != nil {
				return err
			}
			if f.check != "" {
				return checkSignature(cmd, f)
			}
			return verify(cmd, f)
		},
	}
	f.bindLogs(cmd)
	f.bindServer(cmd)
	cmd.Flags().StringVar(&f.checkpoints, "checkpoints", "", "begin at the newest checkpoints in this directory or bucket, as evaluators use it (default: at the beginning)")
	cmd.Flags().BoolVar(&f.waiting, "allow-waiting", false, "accept messages at the end of events that are not decided yet")
	cmd.Flags().IntVar(&f.parallel, "parallel", runtime.GOMAXPROCS(0), "number of partitions to verify at once")
	cmd.Flags().StringVar(&f.sign, "sign", "", "private key (ed25519; PEM, PKCS #8) to sign the report with, which is printed as JSON (default: none)")
	cmd.Flags().StringVar(&f.check, "check-signature", "", "signed report to check; if logs are given, also that they still have what it says (default: none)")
	cmd.Flags().StringVar(&f.expected, "public-key", "", "with --check-signature: key that must have signed the report: a file (PEM), or its fingerprint (SHA256:…)")
	addOutput(cmd, &f.output)
	cmd.AddCommand(newVerifyJobDB())
	return cmd
}

// logsFlags name the logs of a deployment: those of a data directory, three directories,
// topics on Pulsar, an archive, or an archive with any of these behind it.
type logsFlags struct {
	deployment
	log, decisions, policiesLog string
	archive                     string
}

func (l *logsFlags) bindLogs(cmd *cobra.Command) {
	cmd.Flags().StringVar(&l.data, "data", "", "data directory of a deployment on one machine (also REFLOAT_DATA)")
	l.bindPulsar(cmd)
	cmd.Flags().StringVar(&l.log, "log", "", "directory of an events log, with --decisions")
	cmd.Flags().StringVar(&l.decisions, "decisions", "", "directory of a decision log, with --log")
	cmd.Flags().StringVar(&l.policiesLog, "policies-log", "", "directory of a policies log (default: the directory policies beside --decisions)")
	cmd.Flags().StringVar(&l.archive, "archive", "", archiveHelp)
}

// given reports whether the flags name any logs.
func (l *logsFlags) given() bool {
	return l.data != "" || l.onPulsar() || l.log != "" || l.decisions != "" || l.archive != "" || l.serverOnLine()
}

// onServer reports whether a server reads its logs: --server is given, or REFLOAT_SERVER and nothing else.
func (l *logsFlags) onServer() bool {
	return l.deployment.onServer() && (l.serverOnLine() || l.log == "" && l.decisions == "" && l.archive == "")
}

// checkGiven returns a usage error if the flags do not name the logs of one deployment.
func (l *logsFlags) checkGiven() error {
	switch {
	case l.onServer():
		if l.log != "" || l.decisions != "" || l.policiesLog != "" || l.archive != "" {
			return usageError{errors.New("--server and --log, --decisions, --policies-log or --archive name two places to ask: give only one")}
		}
		return l.checkServer()
	case (l.log == "") != (l.decisions == ""):
		return usageError{errors.New("--log and --decisions belong together: the directories of both logs")}
	case l.log != "" && l.named("data", pulsarflags.URL):
		return usageError{errors.New("--log and --decisions, --data and --pulsar name different deployments: give only one")}
	case l.log != "", l.archive != "" && l.data == "" && !l.onPulsar():
		return nil
	}
	return l.checkLogs()
}

// readAll opens the logs during a call.
func (l *logsFlags) readAll(ctx context.Context, use func(audit.Logs) error) error {
	switch {
	case l.log != "":
		return l.readDirs(use)
	case l.archive != "" && l.data == "" && !l.onPulsar():
		a, err := archive.Open(l.archive)
		if err != nil {
			return err
		}
		return use(a.Join(audit.Logs{}))
	}
	return l.readLogsWith(ctx, l.archive, use)
}

// readDirs opens the logs in three directories.
func (l *logsFlags) readDirs(use func(audit.Logs) error) (err error) {
	var logs audit.Logs
	dirs := app.LogDirs{Events: l.log, Decisions: l.decisions, Policies: l.policiesLog}
	logs, closeLogs, err := dirs.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLogs()) }()
	if l.archive != "" {
		a, err := archive.Open(l.archive)
		if err != nil {
			return err
		}
		logs = a.Join(logs)
	}
	return use(logs)
}

// source names the logs for a report.
func (l *logsFlags) source() string {
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+" "+value)
		}
	}
	switch {
	case l.onServer():
		add("server", l.remote.server)
	case l.log != "":
		add("log", l.log)
		add("decisions", l.decisions)
	case l.onPulsar():
		add("events", l.pulsar.Events)
		add("decisions", l.pulsar.Decisions)
	default:
		add("data", l.data)
	}
	add("archive", l.archive)
	return strings.Join(parts, ", ")
}

// verify makes a report on the logs and prints it.
func verify(cmd *cobra.Command, f verifyFlags) error {
	o := f.options(cmd)
	o.AllowWaiting = f.waiting
	if f.checkpoints != "" {
		scratch, err := os.MkdirTemp("", "refloat-verify-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(scratch)
		store, err := storage.Open(cmd.Context(), f.checkpoints, storage.Environment{Getenv: os.Getenv, Now: time.Now})
		if err != nil {
			return err
		}
		fatal := func(err error) {
			_ = os.RemoveAll(scratch)
			os.Exit(exitCode(cmd.CommandPath(), err))
		}
		if o.From, err = app.NewestCheckpoints(store, scratch, time.Now, fatal); err != nil {
			return err
		}
	}
	var key []byte
	if f.sign != "" {
		var err error
		if key, err = os.ReadFile(f.sign); err != nil {
			return fmt.Errorf("read key: %w", err)
		}
		if _, err := report.PrivateKey(key); err != nil {
			return usageError{fmt.Errorf("--sign %s: %w", f.sign, err)}
		}
	}
	r, err := f.makeReport(cmd, o)
	if err != nil {
		return err
	}
	switch {
	case f.sign != "":
		err = printSigned(cmd.OutOrStdout(), r, key)
	case f.output == show.FormJSON:
		err = show.JSONLines(cmd.OutOrStdout()).Encode(r)
	default:
		text.Report(cmd.OutOrStdout(), r, f.waiting)
	}
	if err == nil && !r.Verified {
		return errFinding
	}
	return err
}

func (f *verifyFlags) options(cmd *cobra.Command) report.Options {
	return report.Options{
		Created: time.Now().UTC().Format(time.RFC3339), Program: cmd.Root().Version, Source: f.source(), Parallel: f.parallel,
	}
}

func (f *verifyFlags) makeReport(cmd *cobra.Command, o report.Options) (r *report.Report, err error) {
	if f.onServer() {
		if r, err = f.remote.questions().Verify(cmd.Context(), o); err == nil {
			r.Source = o.Source
		}
		return r, err
	}
	bar, began := show.NewProgress(), time.Now()
	defer bar.Done()
	o.Progress = func(p report.Progress) {
		bar.Update("verifying: %s%s", plural.Of(int(p.Messages), "message"), leftText(p.Share, time.Since(began)))
	}
	err = f.readAll(cmd.Context(), func(logs audit.Logs) (err error) {
		r, err = report.Make(cmd.Context(), logs, o)
		return err
	})
	if errors.Is(err, eventlog.ErrCorrupt) {
		return report.Damaged(err, o), nil
	}
	return r, err
}

// leftText estimates how long something takes that has come so far, in thousandths.
func leftText(share int, took time.Duration) string {
	if share < 1 {
		return ""
	}
	return fmt.Sprintf(", %d%%, about %v left", share/10, (took * time.Duration(1000-share) / time.Duration(share)).Round(time.Second))
}

func printSigned(w io.Writer, r *report.Report, key []byte) error {
	private, err := report.PrivateKey(key)
	if err != nil {
		return err
	}
	signed, err := report.Sign(r, private)
	if err != nil {
		return err
	}
	return show.JSONLines(w).Encode(signed)
}

// checkSignature checks a signed report, and the logs against it if some are given.
func checkSignature(cmd *cobra.Command, f verifyFlags) error {
	text, err := os.ReadFile(f.check)
	if err != nil {
		return fmt.Errorf("read report: %w", err)
	}
	var expected string
	if f.expected != "" {
		if expected, err = fingerprint(f.expected); err != nil {
			return err
		}
	}
	c := checkedReport{Record: "CheckedReport", Logs: []string{}}
	signed, err := report.ReadSigned(text)
	switch {
	case err != nil:
		c.Problem = err.Error()
	case expected == "": // a report names the key that signed it, and anybody can sign one
		c.Key = report.Fingerprint(signed.Signature.PublicKey)
		c.Problem = fmt.Sprintf("signed by an unknown key: %s: give --public-key, the signer's key or its fingerprint", c.Key)
	case expected != report.Fingerprint(signed.Signature.PublicKey):
		c.Key = report.Fingerprint(signed.Signature.PublicKey)
		c.Problem = fmt.Sprintf("signed with another key: %s, not %s", c.Key, expected)
	default:
		c.Key, c.Signed, c.Verified, c.Created = expected, true, signed.Report.Verified, signed.Report.Created
		if f.given() {
			o := f.options(cmd)
			o.Until, o.AllowWaiting = signed.Report.Until(), true
			now, err := f.makeReport(cmd, o)
			if err != nil {
				return err
			}
			c.Compared, c.Logs = true, append(c.Logs, report.Compare(&signed.Report, now)...)
			if now.Problem != "" {
				c.Logs = append(c.Logs, now.Problem)
			}
		}
	}
	if f.output == show.FormJSON {
		err = show.JSONLines(cmd.OutOrStdout()).Encode(c)
	} else {
		err = c.print(cmd.OutOrStdout(), signed)
	}
	if err == nil && (!c.Signed || !c.Verified || len(c.Logs) > 0) {
		return errFinding
	}
	return err
}

// fingerprint returns that of a public key, which a file has unless it is one itself.
func fingerprint(key string) (string, error) {
	if strings.HasPrefix(key, "SHA256:") {
		return key, nil
	}
	text, err := os.ReadFile(key)
	if err != nil {
		return "", fmt.Errorf("read key: %w", err)
	}
	public, err := report.PublicKey(text)
	if err != nil {
		return "", usageError{fmt.Errorf("--public-key %s: %w", key, err)}
	}
	return report.Fingerprint(public), nil
}

// checkedReport is the JSON form of a check of a signature.
type checkedReport struct {
	Record   string   `json:"record"` // CheckedReport
	Signed   bool     `json:"signed"` // the signature fits, and is by the expected key
	Key      string   `json:"key,omitempty"`
	Problem  string   `json:"problem,omitempty"`
	Created  string   `json:"created,omitempty"`
	Verified bool     `json:"verified"` // according to the report
	Compared bool     `json:"comparedWithLogs"`
	Logs     []string `json:"differencesToLogs"`
}

func (c *checkedReport) print(w io.Writer, signed *report.Signed) error {
	if !c.Signed {
		problem := query.OneLine(c.Problem)
		if c.Key == "" {
			problem = "not signed: " + problem
		}
		_, err := fmt.Fprintln(w, problem)
		return err
	}
	r := &signed.Report
	fmt.Fprintf(w, "signed with the key %s\n", c.Key)
	fmt.Fprintf(w, "report of %s by refloatctl %s on %s: %s in %s, %s\n", r.Created, r.Program, query.OneLine(r.Source), plural.Of(r.Messages, "message"),
		plural.Of(len(r.Partitions), "partition"), plural.Of(r.Decisions, "decision"))
	if !c.Verified {
		fmt.Fprintln(w, "the report says that the logs were not verified:")
		text.Report(w, r, false)
	}
	for _, d := range c.Logs {
		fmt.Fprintf(w, "the logs have changed since: %s\n", query.OneLine(d))
	}
	if c.Compared && len(c.Logs) == 0 {
		fmt.Fprintln(w, "the logs still have all that the report is about, byte for byte")
	}
	return nil
}

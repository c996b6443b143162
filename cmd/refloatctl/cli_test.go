package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/eventlog/recording"
)

// drained is a data directory that was fed the recording `retried` under the
// test policies. Tests read it; those that change one work on a copy, because a claim
// more in its logs would change what others find there.
var drained = sync.OnceValues(func() (string, error) {
	data := filepath.Join(scratch, "drained")
	path, err := binary()
	if err != nil {
		return "", err
	}
	_, err = output(path, "up", "--data", data, "--policies", testPolicies, "--feed", recordingFile("retried"), "--quiet", "--exit-when-drained")
	return data, err
})

func drainedData(t *testing.T) string {
	t.Helper()
	data, err := drained()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// drainedCopy is a copy of its logs and its job database, without the state.
func drainedCopy(t *testing.T) string {
	t.Helper()
	from, to := drainedData(t), filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(app.Dir(to).Events(), os.DirFS(app.Dir(from).Events())); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(app.Dir(to).Decisions(), os.DirFS(app.Dir(from).Decisions())); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(app.Dir(to).Policies(), os.DirFS(app.Dir(from).Policies())); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(app.Dir(from).JobDB())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(app.Dir(to).JobDB(), b, 0o644); err != nil {
		t.Fatal(err)
	}
	return to
}

func writeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

const badPolicy = `apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: bad}
spec:
  retryLimit: many
  rules:
  - {name: nothing, action: Retry}
  - {name: regex, action: Retry, onTerminationMessage: {pattern: "("}}
`

func TestExitCodes(t *testing.T) {
	t.Parallel()
	dir, data := t.TempDir(), drainedData(t)
	bad := writeFile(t, dir, "bad/bad.yaml", badPolicy)
	notZip := writeFile(t, dir, "text.jsonl.gz", "this is no gzip\n")
	broken := writeFile(t, dir, "broken/jobs.sqlite", strings.Repeat("this is no database\n", 300))
	log := imported(t, recordingFile("preempted"))
	empty := t.TempDir()
	plain := recordingFile("plain")
	nowhere := filepath.Join(dir, "nowhere")
	for _, c := range []struct {
		name string
		args string
		code int
		want string
	}{
		{"no command", "", exitFine, "Look at jobs and decisions:"},
		{"help", "--help", exitFine, "Exit codes: 0 success, 1 finding"},
		{"help of up", "up --help", exitFine, "REFLOAT_DATA for --data"},
		{"help of replay", "help replay", exitFine, "Examples:"},
		{"completion", "completion bash", exitFine, "bash completion"},
		{"lint", "lint " + testPolicies, exitFine, "4 files are valid; policy set b0a7e23d47b5"},
		{"replay", "replay --log " + log + " --policies " + testPolicies, exitFine, "RuleIgnore"},
		{"verify", "replay --verify --data " + data, exitFine, "verified: deciding 2298 messages again"},
		{"get jobs", "get jobs --data " + data, exitFine, "RETRY AFTER"},
		{"get jobs waiting", "get jobs --waiting --queue genomics --data " + data, exitFine, "JOB"},
		{"get jobs by state", "get jobs --state Failed,Queued --limit 1 --data " + data, exitFine, "Failed"},
		{"get decisions", "get decisions --last 2 --data " + data, exitFine, "DECISION"},
		{"print config", "up --print-config --data x", exitFine, "data: x # flag"},

		{"lint of nothing", "lint " + empty, exitEnvironment, "no policy file there"},
		{"lint of no resource", "lint " + writeFile(t, dir, "comment.yaml", "# nothing\n"), exitEnvironment, "no resource in the policy files"},
		{"lint of no resource as JSON", "lint -o json " + writeFile(t, dir, "comment.yaml", "# nothing\n"), exitEnvironment, "no resource in the policy files"},
		{"lint of no resource as SARIF", "lint -o sarif " + writeFile(t, dir, "comment.yaml", "# nothing\n"), exitEnvironment, "no resource in the policy files"},
		{"lint of one file", "lint " + filepath.Join(testPolicies, "app.yaml"), exitFine, "1 file is valid"},
		{"up without policies", "up --quiet --exit-when-drained --data " + filepath.Join(dir, "without") + " --feed " + plain, exitFine, "no policy is in force: every failed run fails"},
		{"lint finding", "lint " + bad, exitFinding, "bad.yaml:5:15"},
		{"replay with bad policies", "replay --log " + log + " --policies " + bad, exitFinding, "bad.yaml:5:15"},
		{"up with bad policies", "up --data " + nowhere + " --policies " + bad, exitFinding, "bad.yaml:5:15"},
		{"explain an unknown job", "explain nobody --data " + data, exitFinding, "job nobody is not in the job database"},
		{"explain a run that does not exist", "explain " + firstJob(t, data) + " --run 77 --data " + data, exitFinding, "there is no run 77 of job " + firstJob(t, data) + ", which has"},
		{"get an unknown job", "get job nobody --data " + data, exitFinding, "job nobody is not in the job database"},

		{"kill of an empty queue", "kill retries --all --queue= --reason x --data " + data, exitUsage, "--queue is empty: give it a value, or leave it out"},
		{"resume of an empty queue", "resume retries --everything --queue= --reason x --data " + data, exitUsage, "--queue is empty"},
		{"get jobs of an empty queue", "get jobs --queue= --data " + data, exitUsage, "--queue is empty"},
		{"get jobs with a negative limit", "get jobs --limit -1 --data " + data, exitUsage, "--limit -1: want 1 or more"},
		{"get decisions with a negative number", "get decisions --last -1 --data " + data, exitUsage, "--last -1: want 1 or more"},
		{"help of get policies", "get policies --help", exitFine, "-o, --output string"},
		{"get jobs in an empty state", "get jobs --state= --data " + data, exitUsage, "--state is empty"},
		{"up with an empty feed", "up --feed= --data " + nowhere, exitUsage, "--feed is empty"},
		{"unknown command", "replya", exitUsage, "did you mean replay?"},
		{"completion of too much", "completion fish too much", exitUsage, "unknown command"},
		{"up with no partitions", "up --partitions -1 --data " + nowhere, exitUsage, "--partitions -1"},
		{"unknown flag", "up --dtaa x", exitUsage, "refloatctl up: unknown flag: --dtaa: did you mean --data?"},
		{"a server, for a command that reads the job database", "get releases --server 127.0.0.1:1", exitUsage, "refloatctl get releases: --server: it reads logs or the job database itself: give --data or --job-db"},
		{"a server, for a command that reads logs", "test record --server 127.0.0.1:1", exitUsage, "give --data or --job-db or --pulsar instead"},
		{"a server, for a command that reads files", "lint --server 127.0.0.1:1", exitUsage, "--server: it has nothing to ask a server"},
		{"a command with arguments and subcommands", "test " + empty, exitEnvironment, "refloatctl: "},
		{"an unknown flag of it", "test " + empty + " --coverge", exitUsage, "refloatctl test: unknown flag: --coverge: did you mean --coverage?"},
		{"unknown subcommand", "get jbs", exitUsage, "refloatctl get: unknown command \"jbs\": did you mean jobs?"},
		{"unknown subcommand with flags", "get policiess --data x -o json", exitUsage, "unknown command \"policiess\": did you mean policies?"},
		{"unknown command with flags", "gett --data x", exitUsage, "unknown command \"gett\": did you mean get?"},
		{"unknown shell", "completion zshh", exitUsage, "did you mean zsh?"},
		{"no subcommand with flags", "get --data x", exitUsage, "needs a subcommand: "},
		{"usage errors name the subcommand", "get jobs", exitUsage, "refloatctl get jobs: --data DIR is required"},
		{"usage errors lead to its help", "get jobs", exitUsage, "refloatctl get jobs --help explains"},
		{"a limit that is no number", "get jobs --limit x --data x", exitUsage, `refloatctl get jobs: --limit "x": want a whole number`},
		{"a generation below 0", "get policies --generation -1 --data x", exitUsage, "want a whole number, 0 or more"},
		{"a number out of range", "get jobs --limit 99999999999999999999 --data x", exitUsage, "too large"},
		{"a duration without unit", "up --policies-settle 5 --data x", exitUsage, `--policies-settle "5": want a duration with its unit, such as 10s`},
		{"a rate that is no number", "up --scrub-rate a --data x", exitUsage, "want a number, such as 0.5"},
		{"a switch that is neither", "up --quiet=maybe --data x", exitUsage, "want true or false"},
		{"a flag without value", "get jobs --data", exitUsage, "--data needs a value"},
		{"states with quotes", "get jobs --state a\"b --data x", exitUsage, "want values separated by commas, without quotes"},
		{"a mistyped state", "get jobs --state quued --data x", exitUsage, "did you mean Queued? use Unknown, Queued, Leased"},
		{"a mistyped form", "get jobs -o jsn --data x", exitUsage, `-o "jsn": did you mean json? use table, wide, json`},
		{"a mistyped mode", "up --ingest-mode holdbak --data x", exitUsage, "did you mean holdback?"},
		{"a mistyped kind", "history polcy infra --data x", exitUsage, "did you mean policy?"},
		{"unknown flag of get", "get jobs --dtaa x", exitUsage, "unknown flag: --dtaa"},
		{"flag of the wrong type", "up --partitions many", exitUsage, "--partitions"},
		{"up without data", "up", exitUsage, "--data DIR is required"},
		{"up with an argument", "up now", exitUsage, "up takes no argument, but has \"now\""},
		{"a list with a name", "get jobs x", exitUsage, "jobs takes no argument, but has \"x\": `refloatctl get job` shows one"},
		{"up with a bad pace", "up --data " + nowhere + " --pace fast", exitUsage, `--pace "fast"`},
		{"up with no pace", "up --data " + nowhere + " --pace 0x", exitUsage, `--pace "0x"`},
		{"import without a file", "import --log " + nowhere, exitUsage, "FILE is missing"},
		{"import without a log", "import " + plain, exitUsage, "--log DIR is required"},
		{"replay of nothing", "replay", exitUsage, "replay needs --log DIR and --policies DIR"},
		{"replay of no partitions at once", "replay --log a --policies b --parallel 0", exitUsage, "--parallel 0: want 1 or more"},
		{"replay of both", "replay --log a --policies b --data c", exitUsage, "replay needs"},
		{"verify of a log", "replay --verify --log a", exitUsage, "replay needs"},
		{"replay in another form", "replay --log " + log + " --policies " + testPolicies + " -o yaml", exitUsage, `-o "yaml": use table or json`},
		{"get needs a subcommand", "get", exitUsage, "refloatctl get: needs a subcommand: breakers, budgets, decisions, "},
		{"get without data", "get jobs", exitUsage, "--data DIR is required"},
		{"get in another form", "get jobs -o xml --data " + data, exitUsage, `-o "xml"`},
		{"get jobs in no state", "get jobs --state Lost --data " + data, exitUsage, `"Lost"`},
		{"get no job", "get job --data " + data, exitUsage, "JOB is missing"},
		{"explain nothing", "explain --data " + data, exitUsage, "JOB is missing"},
		{"explain without data", "explain x", exitUsage, "--data DIR is required"},
		{"explain in another form", "explain x -o yaml --data " + data, exitUsage, `-o "yaml"`},
		{"explain no run", "explain x --run first --data " + data, exitUsage, "--run"},
		{"lint nothing", "lint", exitUsage, "requires at least 1 arg(s)"},
		{"shadow nothing", "shadow", exitUsage, "refloatctl shadow: needs a subcommand: report"},
		{"shadow report of nothing", "shadow report", exitUsage, "needs --data DIR, --job-db URL, --server HOST:PORT, or --log DIR with --policies PATH"},
		{"shadow report of a log alone", "shadow report --log " + log, exitUsage, "--log DIR with --policies PATH"},
		{"shadow report of two sources", "shadow report --data " + data + " --log " + log, exitUsage, "--log DIR with --policies PATH"},
		{"shadow report since nonsense", "shadow report --data " + data + " --since yesterday", exitUsage, "want a duration such as 24h or 7d, or a time"},
		{"shadow report since the future", "shadow report --data " + data + " --since -1h", exitUsage, "want a duration"},
		{"shadow report in another form", "shadow report -o yaml --data " + data, exitUsage, `-o "yaml"`},
		{"shadow report of -1 jobs", "shadow report --jobs -1 --data " + data, exitUsage, "use 0 or more"},
		{"shadow report of no queue", "shadow report --queue nobody --since 1h --data " + data, exitUsage, `no queue is called "nobody"`},
		{"shadow report of no data", "shadow report --data " + empty, exitEnvironment, "there is no job database yet"},
		{"shadow report of no log", "shadow report --log " + nowhere + "-too --policies " + testPolicies, exitEnvironment, "no Refloat data"},

		{"import of no file", "import " + nowhere + ".jsonl.gz --log " + nowhere, exitEnvironment, "no such file"},
		{"import of no recording", "import " + notZip + " --log " + nowhere, exitEnvironment, "gzip: invalid header"},
		{"import of more partitions", "import " + plain + " --log " + nowhere + "-import --partitions 2", exitEnvironment, "the log has 2 partitions"},
		{"replay of no log", "replay --log " + nowhere + "-too --policies " + testPolicies, exitEnvironment, "no Refloat data"},
		{"replay of no policies", "replay --log " + log + " --policies " + nowhere + "-too", exitEnvironment, "no such file"},
		{"verify of no data", "replay --verify --data " + empty, exitEnvironment, "no Refloat data"},
		{"get of no data", "get jobs --data " + empty, exitEnvironment, "there is no job database yet"},
		{"get of no database", "get jobs --data " + filepath.Dir(broken), exitEnvironment, "jobs.sqlite"},
		{"explain of no data", "explain x --data " + empty, exitEnvironment, "there is no job database yet"},
		{"lint of no file", "lint " + nowhere + "-too", exitEnvironment, "no such file"},
		{"up with no feed", "up --data " + nowhere + " --feed " + nowhere + ".jsonl.gz", exitEnvironment, "no such file"},
		{"up on a file", "up --data " + bad, exitEnvironment, "not a directory"},
		{"up on a bad address", "up --listen nonsense --data " + nowhere + "-listen", exitEnvironment, "choose another --listen"},
		{"up with too few partitions", "up --partitions 2 --feed " + plain + " --data " + nowhere, exitEnvironment, "needs 3 partitions, --partitions says 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := ctl(t, strings.Fields(c.args)...).exits(t, c.code).prints(t, c.want)
			if c.code == exitUsage || c.code == exitEnvironment {
				if r.out != "" {
					t.Errorf("stdout is not empty: %s", tailOf(r.out))
				}
				if !strings.HasPrefix(r.err, "refloatctl") && !strings.Contains(r.err, "\nrefloatctl") {
					t.Errorf("stderr does not name the program: %s", tailOf(r.err))
				}
			}
			if strings.Contains(r.err, "goroutine ") || strings.Contains(r.err, "Usage:") {
				t.Errorf("stderr has more than the error: %s", tailOf(r.err))
			}
		})
	}
}

// firstJob is a job that has a decision.
func firstJob(t *testing.T, data string) string {
	t.Helper()
	line, _, _ := strings.Cut(ctl(t, "get", "decisions", "--data", data, "-o", "json").exits(t, exitFine).out, "\n")
	return jsonLine(t, line+"\n").text("jobId")
}

// TestLint: all errors of a file at once, each with its place, on stdout.
func TestLint(t *testing.T) {
	t.Parallel()
	bad := writeFile(t, t.TempDir(), "bad.yaml", badPolicy)
	r := ctl(t, "lint", bad).exits(t, exitFinding)
	for _, want := range []string{":5:15: ", ":7:", ":8:"} {
		if !strings.Contains(r.out, bad+want) {
			t.Errorf("no problem at %s in:\n%s", want, r.out)
		}
	}
	if r.err != "" {
		t.Errorf("stderr: %s", r.err)
	}
}

// TestImportTwice: what the log holds is not written again, also when only the
// beginning of a recording is there.
func TestImportTwice(t *testing.T) {
	t.Parallel()
	file := recordingFile("plain")
	dir := imported(t, file)
	files := func() string {
		var all strings.Builder
		for _, path := range segments(t, dir) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(b)
		}
		return all.String()
	}
	before := files()
	ctl(t, "import", file, "--log", dir).exits(t, exitFine).prints(t, "1559 messages, 0 of them new")
	if files() != before {
		t.Error("the second import changed the log")
	}

	entries, err := recording.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(t.TempDir(), "plain.jsonl.gz")
	writeRecording(t, half, entries[:700])
	cut := imported(t, half)
	ctl(t, "import", file, "--log", cut).exits(t, exitFine).prints(t, "1559 messages, 859 of them new")
	want := ctl(t, "replay", "--log", dir, "--policies", testPolicies, "-o", "json", "--all").exits(t, exitFine)
	got := ctl(t, "replay", "--log", cut, "--policies", testPolicies, "-o", "json", "--all").exits(t, exitFine)
	if want.out != got.out {
		t.Errorf("imported in two parts, another history: %s", firstDifference(want.out, got.out))
	}

	// A log can contain several recordings.
	ctl(t, "import", recordingFile("chaos"), "--log", dir).exits(t, exitFine).prints(t, "630 messages, 630 of them new")
	ctl(t, "import", file, "--log", dir).exits(t, exitFine).prints(t, "0 of them new")
	ctl(t, "import", recordingFile("chaos"), "--log", dir).exits(t, exitFine).prints(t, "0 of them new")
}

// segments are the segment files of a log.
func segments(t *testing.T, log string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(log, "*", "*.seg"))
	if err != nil || len(all) == 0 {
		t.Fatalf("segments of %s: %v, %v", log, all, err)
	}
	return all
}

// TestGetIsReplay: for the same events and policies, `get decisions` prints
// what `replay` prints, byte for byte.
func TestGetIsReplay(t *testing.T) {
	t.Parallel()
	data := drainedData(t)
	want := ctl(t, "replay", "--log", app.Dir(data).Events(), "--policies", testPolicies, "-o", "json").exits(t, exitFine)
	got := ctl(t, "get", "decisions", "--data", data, "-o", "json").exits(t, exitFine)
	if want.out != got.out {
		t.Error(firstDifference(want.out, got.out))
	}
	all := ctl(t, "replay", "--log", app.Dir(data).Events(), "--policies", testPolicies, "-o", "json", "--all").exits(t, exitFine)
	stored := ctl(t, "get", "decisions", "--data", data, "-o", "json", "--all").exits(t, exitFine)
	if all.out != stored.out {
		t.Errorf("with --all: %s", firstDifference(all.out, stored.out))
	}
	job := firstJob(t, data)
	for line := range strings.Lines(ctl(t, "get", "decisions", "--job", job, "--data", data, "-o", "json").exits(t, exitFine).out) {
		if jsonLine(t, line).text("jobId") != job || !strings.Contains(want.out, line) {
			t.Errorf("get decisions --job %s: %s", job, line)
		}
	}
}

// rewriting are the control characters that change what a terminal shows.
const rewriting = "\x1b\r\b"

// TestPipe: in a pipe there is no color and no progress.
func TestPipe(t *testing.T) {
	t.Parallel()
	data, dir := drainedData(t), t.TempDir()
	job := firstJob(t, data)
	for _, args := range []string{
		"import " + recordingFile("plain") + " --log " + filepath.Join(dir, "log"),
		"up --policies " + testPolicies + " --feed " + recordingFile("plain") + " --exit-when-drained --data " + filepath.Join(dir, "data"),
		"replay --log " + app.Dir(data).Events() + " --policies " + testPolicies,
		"replay --verify --data " + data,
		"explain " + job + " --data " + data,
		"get job " + job + " --data " + data,
		"get jobs --data " + data,
		"get decisions --all --data " + data,
		"shadow report --data " + data,
		"shadow report --log " + app.Dir(data).Events() + " --policies " + testPolicies,
		"lint " + testPolicies,
	} {
		r := ctlIn(t, []string{"TERM=xterm-256color"}, strings.Fields(args)...).exits(t, exitFine)
		if at := strings.IndexAny(r.out+r.err, rewriting); at >= 0 {
			t.Errorf("%s prints %q", args, (r.out + r.err)[at:at+1])
		}
		if strings.Contains(r.err, " of 1559 messages") {
			t.Errorf("%s shows progress: %s", args, r.err)
		}
	}
}

// TestExplainGolden holds what explain says, for people and for programs.
func TestExplainGolden(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	ctl(t, "up", "--data", data, "--policies", testPolicies, "--feed", recordingFile("plain"), "--feed", recordingFile("chaos"), "--feed", recordingFile("preempted"), "--quiet", "--exit-when-drained").exits(t, exitFine)
	var out strings.Builder
	seen := map[string]bool{}
	for line := range strings.Lines(ctl(t, "get", "decisions", "--data", data, "-o", "json").exits(t, exitFine).out) {
		d := jsonLine(t, line)
		if seen[d.text("code")] {
			continue
		}
		seen[d.text("code")] = true
		args := []string{"explain", d.text("jobId"), "--run", d["runIndex"].(interface{ String() string }).String(), "--data", data}
		r := ctl(t, args...).exits(t, exitFine)
		out.WriteString("=== " + d.text("code") + "\n" + r.out + "\n")
		if code := d.text("code"); code == "RuleLimit" || code == "DefaultFail" {
			all := append(args[:2:2], "--data", data, "--all-runs")
			out.WriteString("=== " + code + ", all runs\n" + ctl(t, all...).exits(t, exitFine).out + "\n")
			out.WriteString("=== " + code + ", all runs as JSON\n" + ctl(t, append(all, "-o", "json")...).exits(t, exitFine).out + "\n")
			out.WriteString("=== " + code + ", why not Retry\n" + ctl(t, append(args, "--why-not", "Retry")...).exits(t, exitFine).out + "\n")
		}
		if len(seen) == 1 {
			out.WriteString("=== as JSON\n" + ctl(t, append(args, "-o", "json")...).exits(t, exitFine).out + "\n")
		}
	}
	// Who published the policies, and when, is the machine and the time of the test.
	text := regexp.MustCompile(`last changed by \S+ at \S+,`).ReplaceAllString(out.String(), "last changed by HOST at TIME,")
	text = regexp.MustCompile(`"time":"[^"]*","author":"[^"]*"`).ReplaceAllString(text, `"time":"TIME","author":"HOST"`)
	// Where a record is in the decision log depends on when its ledgers were changed.
	at := regexp.MustCompile(`(?m)^  (\d+):\d+:\d+  `)
	golden(t, "explain.golden.txt", at.ReplaceAllString(strings.ReplaceAll(text, data, "DATA"), "  $1:LEDGER:ENTRY  "))
}

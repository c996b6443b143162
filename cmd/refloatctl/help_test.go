package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"
)

// TestHelpIsGrouped: every command stands in a group of the help, and a group names only commands.
func TestHelpIsGrouped(t *testing.T) {
	t.Parallel()
	root := newRoot()
	grouped := map[string]bool{"completion": true, "help": true, "version": true, connectionTopic: true}
	for _, g := range commandGroups {
		for name := range strings.FieldsSeq(g.commands) {
			if grouped[name] {
				t.Errorf("%s stands in two groups", name)
			}
			grouped[name] = true
			if cmd, _, err := root.Find([]string{name}); err != nil || cmd.GroupID != g.title {
				t.Errorf("%s of %q: %v", name, g.title, err)
			}
		}
	}
	for _, cmd := range root.Commands() {
		if !grouped[cmd.Name()] && !cmd.Hidden {
			t.Errorf("%s stands in no group of commandGroups", cmd.Name())
		}
	}
}

// TestConnectionIsDocumentedOnce: the help of a command has the flags that are its own and those that say
// where to look; how to get there is in the topic, to which it refers.
func TestConnectionIsDocumentedOnce(t *testing.T) {
	t.Parallel()
	topic := ctl(t, "help", connectionTopic).exits(t, exitFine).out
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		help := cmd.UsageString()
		for _, flag := range []string{"--pulsar-tls-ca ", "--server-ca ", "--token-file ", "--print-config "} {
			if strings.Contains(help, flag) {
				t.Errorf("%s repeats %s", cmd.CommandPath(), flag)
			}
			if !strings.Contains(topic, flag) {
				t.Errorf("the topic has no %s", flag)
			}
		}
	}
	walk(newRoot())
	jobs := ctl(t, "get", "jobs", "--help").exits(t, exitFine).out
	for _, want := range []string{"--data ", "--server ", "--job-db ", "--queue ", "refloatctl help " + connectionTopic} {
		if !strings.Contains(jobs, want) {
			t.Errorf("get jobs --help has no %s:\n%s", want, jobs)
		}
	}
}

// TestExportOfUnknownName: a file whose name does not say that it is CSV or Parquet is not written.
func TestExportOfUnknownName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"x.xlsx", "x"} {
		out := filepath.Join(t.TempDir(), name)
		printed := ctl(t, "export", "jobs", "--data", "nowhere", "--out", out).exits(t, exitUsage).err
		if !strings.Contains(printed, "neither a .csv nor a .parquet file") {
			t.Errorf("--out %s: it printed %s", name, printed)
		}
	}
	taken := filepath.Join(t.TempDir(), "x.CSV")
	if err := os.WriteFile(taken, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, more := range [][]string{{"--out", taken}, {"--out", filepath.Dir(taken), "--format", "csv"}} {
		ctl(t, append([]string{"export", "jobs", "--data", "nowhere"}, more...)...).exits(t, exitEnvironment).prints(t, "--out "+more[1]+": there is such a file or directory already: give another name, or remove it")
	}
	if kept, err := os.ReadFile(taken); err != nil || string(kept) != "mine" {
		t.Errorf("the file that was there: %q, %v", kept, err)
	}
	ctl(t, "export", "jobs", "--server", "127.0.0.1:1").exits(t, exitUsage).prints(t, "give --data DIR or --job-db URL instead of --server")
}

// TestCommandsDocumented: docs/reference/commands.md has each command.
func TestCommandsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	var table string // what stands between backticks in the first column
	for _, m := range regexp.MustCompile("(?m)^\\| (`.*?`) \\| ").FindAllStringSubmatch(string(page), -1) {
		table += m[1] + "\n"
	}
	for _, c := range newRoot().Commands() {
		if !c.IsAvailableCommand() || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		if !regexp.MustCompile("`" + c.Name() + "\\b").MatchString(table) {
			t.Errorf("the table lacks %s", c.Name())
		}
	}
}

// TestRootsAtOnce: commands may be made side by side, as tests do; cobra's templates are one for the process.
func TestRootsAtOnce(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				_ = newRoot().Name()
			}
		})
	}
	all.Wait()
}

// TestWrongFile: a file of another kind is called so.
func TestWrongFile(t *testing.T) {
	t.Parallel()
	recording, policies := recordingFile("plain"), filepath.Join(examplesDir, "batch.yaml")
	for line, want := range map[string]string{
		"lint " + recording:                                     "the file is compressed with gzip, as recordings are. fix: give a file of policies",
		"verify --check-signature " + policies:                  "this is no signed report, as `refloatctl verify --sign` writes it",
		"feed --data nowhere " + policies:                       "is not a recording",
		"import --log nowhere " + policies:                      "is not a recording",
		"test " + policies:                                      "unknown kind RetryPolicy. fix: use RetryPolicyTest",
		"replay --policies " + policies + " --log " + recording: "no Refloat data in",
	} {
		if r := ctl(t, strings.Fields(line)...); r.code == exitFine || !strings.Contains(r.out+r.err, want) {
			t.Errorf("%s: exit code %d, %s%s", line, r.code, r.out, r.err)
		}
	}
}

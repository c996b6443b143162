package settings_test

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/settings"
)

// load runs Load on a command with some flags, and returns what the flags are
// and what was printed.
func load(t *testing.T, file string, args ...string) (values map[string]string, out string, err error) {
	t.Helper()
	cmd := &cobra.Command{Use: "test", SilenceErrors: true, SilenceUsage: true}
	cmd.Flags().String("data", "nowhere", "")
	cmd.Flags().Int("partitions", 3, "")
	cmd.Flags().Bool("exit-when-drained", false, "")
	cmd.Flags().StringArray("feed", nil, "")
	settings.Bind(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return settings.Load(cmd) }
	var b bytes.Buffer
	cmd.SetOut(&b)
	if file != "" {
		path := filepath.Join(t.TempDir(), "settings.yaml")
		if err := os.WriteFile(path, []byte(file), 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	cmd.SetArgs(args)
	err = cmd.Execute()
	values = map[string]string{}
	for _, name := range []string{"data", "partitions", "exit-when-drained", "feed"} {
		values[name] = cmd.Flags().Lookup(name).Value.String()
	}
	return values, b.String(), err
}

// TestPrecedence: flag, then environment, then file, then default.
func TestPrecedence(t *testing.T) {
	for _, c := range []struct {
		name, file, env string
		args            []string
		want, from      string
	}{
		{name: "default", want: "nowhere", from: "default"},
		{name: "file", file: "data: file\n", want: "file", from: "settings.yaml:1:1"},
		{name: "environment", env: "env", want: "env", from: "REFLOAT_DATA"},
		{name: "flag", args: []string{"--data", "flag"}, want: "flag", from: "flag"},
		{name: "environment over file", file: "data: file\n", env: "env", want: "env", from: "REFLOAT_DATA"},
		{name: "flag over environment", env: "env", args: []string{"--data=flag"}, want: "flag", from: "flag"},
		{name: "flag over file", file: "\n\n data: file\n", args: []string{"--data=flag"}, want: "flag", from: "flag"},
		{name: "flag over all", file: "data: file\n", env: "env", args: []string{"--data=flag"}, want: "flag", from: "flag"},
		{name: "flag with the default's value", file: "data: file\n", env: "env", args: []string{"--data=nowhere"}, want: "nowhere", from: "flag"},
		{name: "place in the file", file: "# a comment\npartitions: 4\ndata: file\n", want: "file", from: "settings.yaml:3:1"},
		{name: "empty file", file: "# nothing\n", want: "nowhere", from: "default"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.env != "" {
				t.Setenv("REFLOAT_DATA", c.env)
			}
			values, _, err := load(t, c.file, c.args...)
			if err != nil || values["data"] != c.want {
				t.Errorf("data is %q, want %q (%v)", values["data"], c.want, err)
			}
			_, out, err := load(t, c.file, append(c.args, "--print-config")...)
			if !errors.Is(err, settings.ErrPrinted) {
				t.Fatalf("Load = %v, want ErrPrinted", err)
			}
			line, _, _ := strings.Cut(out, "\n")
			if !strings.HasPrefix(line, "data: "+c.want+" # ") || !strings.HasSuffix(line, c.from) {
				t.Errorf("printed %q, want %s from %s", line, c.want, c.from)
			}
		})
	}
}

// TestTypes: values of all types, names with hyphens, and lists.
func TestTypes(t *testing.T) {
	t.Setenv("REFLOAT_EXIT_WHEN_DRAINED", "true")
	values, _, err := load(t, "partitions: 7\nfeed: [a, b]\n")
	if err != nil || values["partitions"] != "7" || values["exit-when-drained"] != "true" || values["feed"] != "[a,b]" {
		t.Errorf("%v, %v", values, err)
	}
	values, _, err = load(t, "feed: [a, b]\n", "--feed", "c", "--feed", "d")
	if err != nil || values["feed"] != "[c,d]" {
		t.Errorf("a flag takes the place of the list: %v, %v", values["feed"], err)
	}
	values, _, err = load(t, "feed: a\n")
	if err != nil || values["feed"] != "[a]" {
		t.Errorf("one for a list: %v, %v", values["feed"], err)
	}
	_, out, _ := load(t, "", "--print-config")
	for _, hidden := range []string{"config:", "help:"} {
		if strings.Contains(out, hidden) {
			t.Errorf("%q is printed:\n%s", hidden, out)
		}
	}
	if n := strings.Count(out, "\n"); n != 4 {
		t.Errorf("%d lines:\n%s", n, out)
	}
}

// TestPrintedIsRead: what --print-config prints is a settings file.
func TestPrintedIsRead(t *testing.T) {
	args := []string{"--feed", "a, b", "--feed", "c: d", "--data", "# x", "--partitions", "5"}
	want, _, err := load(t, "", args...)
	if err != nil {
		t.Fatal(err)
	}
	_, out, _ := load(t, "", append(args, "--print-config")...)
	if got, _, err := load(t, out); err != nil || !maps.Equal(got, want) {
		t.Errorf("read back: %v, want %v (%v):\n%s", got, want, err, out)
	}
}

// TestMistakes: each names its place, and all come at once.
func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		name, file string
		want       []string
	}{
		{"unknown key", "data: x\ndtaa: y\n", []string{`settings.yaml:2:1: unknown setting "dtaa"`}},
		{"two mistakes", "dtaa: y\npartitions: many\n", []string{`settings.yaml:1:1: unknown setting "dtaa"`, `settings.yaml:2:1: partitions: `, `"many"`}},
		{"indented", "  exit-when-drained: maybe\n", []string{`settings.yaml:1:3: exit-when-drained: `}},
		{"a list", "- data\n", []string{"settings.yaml:1:1: want `name: value` lines"}},
		{"no YAML", "data: [\n", []string{"settings.yaml:2: this is not YAML"}},
		{"config in the config", "config: x\n", []string{`settings.yaml:1:1: unknown setting "config"`}},
		{"print-config in the config", "print-config: true\n", []string{`unknown setting "print-config"`}},
		{"a key twice", "data: x\npartitions: 1\ndata: y\n", []string{`settings.yaml:3:1: data: want it once`}},
		{"a mapping", "data: {x: y}\n", []string{`settings.yaml:1:1: data: want it once, with a value`}},
		{"underscores", "exit_when_drained: true\n", []string{`unknown setting "exit_when_drained"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := load(t, c.file)
			if err == nil {
				t.Fatal("Load = nil")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Load = %v, want %q in it", err, want)
				}
			}
		})
	}
	t.Run("environment", func(t *testing.T) {
		t.Setenv("REFLOAT_PARTITIONS", "many")
		if _, _, err := load(t, ""); err == nil || !strings.Contains(err.Error(), `REFLOAT_PARTITIONS="many"`) {
			t.Errorf("Load = %v", err)
		}
	})
	t.Run("no file", func(t *testing.T) {
		if _, _, err := load(t, "", "--config", "/nowhere/settings.yaml"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Load = %v", err)
		}
	})
}

// TestSecrets: a secret is used, and never printed, whatever it comes from; what
// is printed of it can be read back.
func TestSecrets(t *testing.T) {
	for _, c := range []struct{ name, flag, value, want string }{
		{"a token", "token", "s3cret", "# token: (secret) # "},
		{"a URL with a password", "db", "postgres://me:s3cret@host:5432/x?a=b", "# db: postgres://me:(secret)@host:5432/x?a=b # "},
		{"a password with a slash", "db", "postgres://me:s3cret/s3cret@host", "# db: postgres://me:(secret)@host # "},
		{"a password without a user", "db", "redis://:s3cret@host", "# db: redis://:(secret)@host # "},
		{"a password among pairs", "db", "host=x Password=s3cret", "# db: (secret) # "},
		{"a URL with a user", "db", "postgres://me@host:5432/x", "db: postgres://me@host:5432/x # "},
		{"a URL", "db", "postgres://host:5432/x", "db: postgres://host:5432/x # "},
	} {
		for _, source := range []string{"flag", "environment", "file"} {
			t.Run(c.name+" from "+source, func(t *testing.T) {
				cmd := &cobra.Command{Use: "test", SilenceErrors: true, SilenceUsage: true}
				cmd.Flags().String("token", "", "")
				db := cmd.Flags().String("db", "", "")
				settings.Secret(cmd, "token")
				settings.Bind(cmd)
				cmd.RunE = func(cmd *cobra.Command, _ []string) error { return settings.Load(cmd) }
				var out bytes.Buffer
				cmd.SetOut(&out)
				args := []string{"--print-config"}
				switch source {
				case "flag":
					args = append(args, "--"+c.flag, c.value)
				case "environment":
					t.Setenv("REFLOAT_"+strings.ToUpper(c.flag), c.value)
				case "file":
					path := filepath.Join(t.TempDir(), "s.yaml")
					if err := os.WriteFile(path, []byte(c.flag+": '"+c.value+"'\n"), 0o600); err != nil {
						t.Fatal(err)
					}
					args = append(args, "--config", path)
				}
				cmd.SetArgs(args)
				if err := cmd.Execute(); !errors.Is(err, settings.ErrPrinted) {
					t.Fatalf("Load = %v", err)
				}
				if strings.Contains(out.String(), "s3cret") || !strings.Contains(out.String(), c.want) {
					t.Errorf("printed, want %q in it:\n%s", c.want, &out)
				}
				if c.flag == "db" && *db != c.value {
					t.Errorf("the value is %q, want %q", *db, c.value)
				}
				path := filepath.Join(t.TempDir(), "printed.yaml")
				if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
				cmd.SetArgs([]string{"--config", path, "--print-config"})
				if err := cmd.Execute(); !errors.Is(err, settings.ErrPrinted) {
					t.Errorf("what is printed is no settings file: %v", err)
				}
			})
		}
	}
}

// TestEmpty: an empty value comes from a variable that is not set, whatever the source, and is refused unless the
// flag takes it.
func TestEmpty(t *testing.T) {
	run := func(t *testing.T, env, file string, args ...string) (string, error) {
		cmd := &cobra.Command{Use: "test", SilenceErrors: true, SilenceUsage: true}
		cmd.Flags().String("job-db", "", "")
		cmd.Flags().String("listen", ":9090", "")
		cmd.Flags().StringArray("feed", nil, "")
		settings.MayBeEmpty(cmd, "listen")
		settings.Bind(cmd)
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return settings.Load(cmd) }
		var out bytes.Buffer
		cmd.SetOut(&out)
		if name, value, ok := strings.Cut(env, "="); ok {
			t.Setenv(name, value)
		}
		path := filepath.Join(t.TempDir(), "settings.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd.SetArgs(append(args, "--config", path))
		err := cmd.Execute()
		return out.String(), err
	}
	for _, c := range []struct{ name, env, file, arg, want string }{
		{name: "environment", env: "REFLOAT_JOB_DB=", want: "REFLOAT_JOB_DB is empty"},
		{name: "environment over a file", env: "REFLOAT_JOB_DB=", file: "job-db: x\n", want: "REFLOAT_JOB_DB is empty"},
		{name: "environment for a list", env: "REFLOAT_FEED=", want: "REFLOAT_FEED is empty"},
		{name: "file", file: "# a comment\njob-db: ''\n", want: "settings.yaml:2:1: job-db is empty"},
		{name: "file without a value", file: "job-db:\n", want: "settings.yaml:1:1: job-db is empty"},
		{name: "list in a file", file: "feed: []\n", want: "settings.yaml:1:1: feed is empty"},
		{name: "in a list in a file", file: "feed: [a, '']\n", want: "settings.yaml:1:1: feed is empty"},
		{name: "the command line wins", env: "REFLOAT_JOB_DB=", file: "job-db: ''\n", arg: "--job-db=x"},
		{name: "may be empty in the environment", env: "REFLOAT_LISTEN="},
		{name: "may be empty in a file", file: "listen: ''\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var args []string
			if c.arg != "" {
				args = append(args, c.arg)
			}
			_, err := run(t, c.env, c.file, args...)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("Load = %v, want %q", err, c.want)
			}
		})
	}
	t.Run("what is printed can be read back", func(t *testing.T) {
		out, err := run(t, "", "", "--listen=", "--print-config")
		if !errors.Is(err, settings.ErrPrinted) || !strings.Contains(out, "# job-db: \"\" # default\n") {
			t.Errorf("%v, printed:\n%s", err, out)
		}
		if again, err := run(t, "", out, "--print-config"); !errors.Is(err, settings.ErrPrinted) || !strings.Contains(again, "\nlisten: \"\" # ") {
			t.Errorf("read back: %v\n%s", err, again)
		}
	})
}

// TestWrongValues: wherever a value comes from, the message says what it must look like, in no parser's words.
func TestWrongValues(t *testing.T) {
	for _, c := range []struct{ name, file, env, want string }{
		{"environment", "", "many", `REFLOAT_PARTITIONS="many": want a whole number`},
		{"file", "partitions: many\n", "", `settings.yaml:1:1: partitions: "many": want a whole number`},
		{"no YAML", "data: [\n", "", "this is not YAML: want `name: value` lines"},
		{"mistyped", "partitons: 3\n", "", `unknown setting "partitons": did you mean partitions?`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.env != "" {
				t.Setenv("REFLOAT_PARTITIONS", c.env)
			}
			_, _, err := load(t, c.file)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error = %v, want %s", err, c.want)
			}
			for _, raw := range []string{"strconv", ": yaml:", "invalid syntax"} {
				if strings.Contains(err.Error(), raw) {
					t.Errorf("error = %v: these are the words of a parser", err)
				}
			}
		})
	}
}

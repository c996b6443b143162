package apiflags_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/apiflags"
	"github.com/refloat/refloat/internal/app"
)

func source(t *testing.T, policies string, args ...string) (out *app.Follow, err error) {
	t.Helper()
	cmd := &cobra.Command{Use: "test", SilenceErrors: true, SilenceUsage: true}
	f := apiflags.BindFollow(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		out, err = f.Source(policies)
		return err
	}
	cmd.SetArgs(args)
	return out, cmd.Execute()
}

func TestFollowFlags(t *testing.T) { // not parallel: it sets the environment
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	token, password, empty := file("token", "abc\n"), file("password", "p:w\n"), file("empty", "\n")
	for _, c := range [][2]string{
		{"--follow-armada armada", "want HOST:PORT"},
		{"--follow-armada :50051", "want HOST:PORT"},
		{"--follow-armada a:1 --follow-armada-every 10ms", "at least 1s"},
		{"--follow-armada a:1 --follow-armada-user ann", "no password"},
		{"--follow-armada a:1 --follow-armada-user ann --follow-armada-token-file " + token, "give only one of them"},
		{"--follow-armada a:1 --follow-armada-password-file " + password, "needs --follow-armada-user"},
		{"--follow-armada a:1 --follow-armada-token-file " + empty, "is empty"},
		{"--follow-armada a:1 --follow-armada-token-file " + dir + "/nowhere", "no such file"},
		{"--follow-armada a:1 --follow-armada-ca " + token, "no certificate"},
		{"--follow-armada a:1 --follow-armada-plaintext --follow-armada-ca " + token, "give only one of them"},
		{"--follow-armada-plaintext", "need --follow-armada HOST:PORT"},
		{"--follow-armada-token-file " + token, "need --follow-armada HOST:PORT"},
	} {
		args, want := c[0], c[1]
		if _, err := source(t, "", strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "abc") {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
	if _, err := source(t, "policies/", "--follow-armada", "a:1"); err == nil || !strings.Contains(err.Error(), "--policies") {
		t.Errorf("with --policies: %v", err)
	}
	if f, err := source(t, "policies/"); f != nil || err != nil {
		t.Errorf("without: %v, %v", f, err)
	}

	// TLS unless it is this machine, or plaintext is asked for.
	for args, encrypted := range map[string]bool{
		"--follow-armada armada:50051":                           true,
		"--follow-armada 127.0.0.1:50051":                        false,
		"--follow-armada localhost:50051":                        false,
		"--follow-armada armada:50051 --follow-armada-plaintext": false,
	} {
		if f, err := source(t, "", strings.Fields(args)...); err != nil || (f.TLS != nil) != encrypted || f.Authorization != nil || f.Every != 10*time.Second {
			t.Errorf("%s: %+v, %v", args, f, err)
		}
	}

	header := func(f *app.Follow, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		h, err := f.Authorization()
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	f, err := source(t, "", "--follow-armada", "a:1", "--follow-armada-token-file", token)
	if h := header(f, err); h != "Bearer abc" {
		t.Errorf("header %q", h)
	}
	file("token", "next")
	if h := header(f, nil); h != "Bearer next" {
		t.Errorf("after the token was replaced: %q", h)
	}
	basic := func(password string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte("ann:"+password))
	}
	if h := header(source(t, "", "--follow-armada", "a:1", "--follow-armada-user", "ann", "--follow-armada-password-file", password)); h != basic("p:w") {
		t.Errorf("header %q", h)
	}
	t.Setenv("REFLOAT_FOLLOW_ARMADA_PASSWORD", "env")
	if h := header(source(t, "", "--follow-armada", "a:1", "--follow-armada-user", "ann")); h != basic("env") {
		t.Errorf("header %q", h)
	}
}

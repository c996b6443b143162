package apiflags

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A mistake in what says who is notified is named by its flag, without what may be secret.
func TestWhoIsNotified(t *testing.T) {
	t.Parallel()
	good, bad := write(t, "good", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"), write(t, "bad", secret)
	for _, c := range []struct{ flags, want string }{
		{"", ""},
		{"--notify-url http://127.0.0.1:1/x --notify-secret-file " + good, ""},
		{"--notify-url https://hooks.slack.com/services/x --notify-format slack", ""},
		{"--notify-url http://hooks.slack.com/" + secret + " --notify-format slack", "--notify-url: want an address such as https://"},
		{"--notify-url ftp://" + secret + " --notify-secret-file " + good, "--notify-url: want an address such as https://"},
		{"--notify-url https://example.com/" + secret, "--notify-url needs --notify-secret-file FILE"},
		{"--notify-url https://example.com --notify-secret-file " + bad, "--notify-secret-file " + bad + ": want whsec_"},
		{"--notify-url https://example.com --notify-secret-file missing.txt", "--notify-secret-file: open missing.txt"},
		{"--notify-url https://example.com --notify-format slack --notify-secret-file " + good, "--notify-secret-file: what Slack gets is not signed"},
		{"--notify-url https://example.com --notify-format slak", "--notify-format: format \"slak\": did you mean slack?"},
		{"--notify-format slack", "need --notify-url"},
		{"--notify-secret-file " + good, "need --notify-url"},
	} {
		cmd := &cobra.Command{}
		f := BindNotify(cmd)
		if err := cmd.ParseFlags(strings.Fields(c.flags)); err != nil {
			t.Fatal(err)
		}
		r, err := f.Receiver()
		switch {
		case c.want == "" && (err != nil || (r != nil) != (c.flags != "")):
			t.Errorf("%s: %v, %v", c.flags, r, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), secret)):
			t.Errorf("%s: %v, want %q", c.flags, err, c.want)
		}
	}
}

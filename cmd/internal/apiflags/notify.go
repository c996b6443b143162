package apiflags

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/settings"
	"github.com/refloat/refloat/internal/notify"
	"github.com/refloat/refloat/internal/suggest"
)

// Notify holds the flags that say who is notified.
type Notify struct{ address, format, secrets string }

// BindNotify adds the flags to a command.
func BindNotify(cmd *cobra.Command) *Notify {
	f := &Notify{}
	set := cmd.Flags()
	set.StringVar(&f.address, "notify-url", "", "address that gets notifications of breakers, overrides, policies and groups that failed; set a secret one, as Slack's, as REFLOAT_NOTIFY_URL (default: none)")
	settings.Secret(cmd, "notify-url")
	set.StringVar(&f.format, "notify-format", notify.FormatJSON, "json (signed, as Standard Webhooks has it) or slack")
	set.StringVar(&f.secrets, "notify-secret-file", "", "file with the secret that signs notifications in JSON: whsec_ and base64")
	return f
}

// Receiver returns who is notified; nil: nobody is. Its errors are usage errors.
func (f *Notify) Receiver() (*notify.Receiver, error) {
	slack := f.format == notify.FormatSlack
	switch {
	case !slack && f.format != notify.FormatJSON:
		return nil, fmt.Errorf("--notify-format: %w", suggest.Unknown("format", f.format, notify.FormatJSON, notify.FormatSlack))
	case f.address == "" && (slack || f.secrets != ""):
		return nil, errors.New("--notify-format and --notify-secret-file need --notify-url")
	case f.address == "":
		return nil, nil
	case slack && f.secrets != "":
		return nil, errors.New("--notify-secret-file: what Slack gets is not signed: leave it out, or --notify-format slack")
	case !slack && f.secrets == "":
		return nil, errors.New("--notify-url needs --notify-secret-file FILE, so that its receiver knows who notifies; for Slack, give --notify-format slack instead")
	}
	secrets := ""
	if f.secrets != "" {
		text, err := os.ReadFile(f.secrets)
		if err != nil {
			return nil, fmt.Errorf("--notify-secret-file: %w", err)
		}
		secrets = string(text)
	}
	r, err := notify.NewReceiver(f.address, f.format, secrets)
	switch {
	case errors.Is(err, notify.ErrAddress):
		return nil, fmt.Errorf("--notify-url: %w", err)
	case err != nil:
		return nil, fmt.Errorf("--notify-secret-file %s: %w", f.secrets, err)
	}
	return r, nil
}

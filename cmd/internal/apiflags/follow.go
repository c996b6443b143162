package apiflags

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/app"
)

// passwordEnv holds the password for --follow-armada-user, where no file does.
const passwordEnv = "REFLOAT_FOLLOW_ARMADA_PASSWORD"

// Follow are the flags that say which Armada's policies are followed.
type Follow struct {
	address, user, password, token, ca string
	every                              time.Duration
	plaintext                          bool
}

// BindFollow adds the flags to a command.
func BindFollow(cmd *cobra.Command) *Follow {
	f := &Follow{}
	set := cmd.Flags()
	set.StringVar(&f.address, "follow-armada", "", "HOST:PORT of an Armada server's gRPC: its retry policies, and which of them its queues name, are ours; not with --policies")
	set.DurationVar(&f.every, "follow-armada-every", 10*time.Second, "how often they are read")
	set.StringVar(&f.user, "follow-armada-user", "", "user at Armada, with the password in --follow-armada-password-file or "+passwordEnv)
	set.StringVar(&f.password, "follow-armada-password-file", "", "file with the user's password")
	set.StringVar(&f.token, "follow-armada-token-file", "", "file with a bearer token for Armada, read again each time")
	set.StringVar(&f.ca, "follow-armada-ca", "", "certificates that Armada's is signed by, PEM (default: those of this machine)")
	set.BoolVar(&f.plaintext, "follow-armada-plaintext", false, "talk to Armada on another machine without TLS")
	return f
}

// Source reads what the flags name; nil: nothing is followed. Policies is the value of
// --policies. Its errors are the command line's fault.
func (f *Follow) Source(policies string) (*app.Follow, error) {
	if f.address == "" {
		if f.user+f.password+f.token+f.ca != "" || f.plaintext {
			return nil, errors.New("--follow-armada-…: give --follow-armada HOST:PORT too")
		}
		return nil, nil
	}
	switch host, port, err := net.SplitHostPort(f.address); {
	case err != nil || host == "" || port == "":
		return nil, fmt.Errorf("--follow-armada %q: give HOST:PORT, as armada-server:50051", f.address)
	case policies != "":
		return nil, errors.New("--follow-armada and --policies: policies can come from one place only (with --follow-armada, settings and what else queues say go in with `refloatctl apply`)")
	case f.every < time.Second:
		return nil, fmt.Errorf("--follow-armada-every %v: give 1s or more", f.every)
	case f.user != "" && f.token != "":
		return nil, errors.New("--follow-armada-user and --follow-armada-token-file: give one of them")
	case f.password != "" && f.user == "":
		return nil, errors.New("--follow-armada-password-file: give --follow-armada-user too")
	}
	out := &app.Follow{Address: f.address, Every: f.every}
	var err error
	if out.TLS, err = f.tls(); err != nil {
		return nil, err
	}
	if f.user != "" || f.token != "" {
		out.Authorization = f.authorization
		if _, err := f.authorization(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// tls is nil where nothing is encrypted: on this machine, or where that was asked for.
func (f *Follow) tls() (*tls.Config, error) {
	if f.ca == "" && (f.plaintext || api.OnLoopback(f.address)) {
		return nil, nil
	}
	if f.plaintext {
		return nil, errors.New("--follow-armada-ca and --follow-armada-plaintext: give one of them")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.ca != "" {
		text, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("--follow-armada-ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--follow-armada-ca %s: no certificate in it", f.ca)
		}
	}
	return config, nil
}

// authorization reads its file each time, so that a token may be replaced.
func (f *Follow) authorization() (string, error) {
	if f.token != "" {
		token, err := secretIn("--follow-armada-token-file", f.token)
		return "Bearer " + token, err
	}
	password := os.Getenv(passwordEnv)
	if f.password != "" {
		var err error
		if password, err = secretIn("--follow-armada-password-file", f.password); err != nil {
			return "", err
		}
	}
	if password == "" {
		return "", fmt.Errorf("--follow-armada-user %s: no password: give --follow-armada-password-file or %s", f.user, passwordEnv)
	}
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(f.user+":"+password)), nil
}

func secretIn(flag, file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", fmt.Errorf("%s %s: it is empty", flag, file)
	}
	if strings.ContainsAny(secret, "\r\n") {
		return "", fmt.Errorf("%s %s: more than one line", flag, file)
	}
	return secret, nil
}

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

// passwordEnv holds the password of --follow-armada-user if no file is given.
const passwordEnv = "REFLOAT_FOLLOW_ARMADA_PASSWORD"

// Follow holds the flags that name the Armada server to follow.
type Follow struct {
	address, user, password, token, ca string
	every                              time.Duration
	plaintext                          bool
}

// BindFollow adds the flags to a command.
func BindFollow(cmd *cobra.Command) *Follow {
	f := &Follow{}
	set := cmd.Flags()
	set.StringVar(&f.address, "follow-armada", "", "HOST:PORT (gRPC) of an Armada server whose retry policies, and the queues' choice of them, are used here; not with --policies")
	set.DurationVar(&f.every, "follow-armada-every", 10*time.Second, "how often to read them")
	set.StringVar(&f.user, "follow-armada-user", "", "user name at Armada, with the password in --follow-armada-password-file or "+passwordEnv)
	set.StringVar(&f.password, "follow-armada-password-file", "", "file with the user's password")
	set.StringVar(&f.token, "follow-armada-token-file", "", "file with a bearer token for Armada, read before each request")
	set.StringVar(&f.ca, "follow-armada-ca", "", "CA certificates to verify Armada's certificate with, PEM (default: the system's)")
	set.BoolVar(&f.plaintext, "follow-armada-plaintext", false, "connect to an Armada on another machine without TLS")
	return f
}

// Source loads the files that the flags name. It returns nil if no Armada is followed. Policies is the value of
// --policies. Its errors are usage errors.
func (f *Follow) Source(policies string) (*app.Follow, error) {
	if f.address == "" {
		if f.user+f.password+f.token+f.ca != "" || f.plaintext {
			return nil, errors.New("the --follow-armada-… flags need --follow-armada HOST:PORT")
		}
		return nil, nil
	}
	switch host, port, err := net.SplitHostPort(f.address); {
	case err != nil || host == "" || port == "":
		return nil, fmt.Errorf("--follow-armada %q: want HOST:PORT, such as armada-server:50051", f.address)
	case policies != "":
		return nil, errors.New("--follow-armada and --policies: give only one source of policies (with --follow-armada, set settings and the other fields of queues by `refloatctl apply`)")
	case f.every < time.Second:
		return nil, fmt.Errorf("--follow-armada-every %v: want at least 1s", f.every)
	case f.user != "" && f.token != "":
		return nil, errors.New("--follow-armada-user and --follow-armada-token-file: give only one of them")
	case f.password != "" && f.user == "":
		return nil, errors.New("--follow-armada-password-file needs --follow-armada-user")
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

// tls returns nil if the connection is not encrypted: on this machine, or with --follow-armada-plaintext.
func (f *Follow) tls() (*tls.Config, error) {
	if f.ca == "" && (f.plaintext || api.OnLoopback(f.address)) {
		return nil, nil
	}
	if f.plaintext {
		return nil, errors.New("--follow-armada-ca and --follow-armada-plaintext: give only one of them")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.ca != "" {
		text, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("--follow-armada-ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--follow-armada-ca %s: the file contains no certificate", f.ca)
		}
	}
	return config, nil
}

// authorization reads its file for each request, so that a token can be rotated.
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
		return "", fmt.Errorf("--follow-armada-user %s: no password given: use --follow-armada-password-file or %s", f.user, passwordEnv)
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
		return "", fmt.Errorf("%s %s: the file is empty", flag, file)
	}
	if strings.ContainsAny(secret, "\r\n") {
		return "", fmt.Errorf("%s %s: want one line", flag, file)
	}
	return secret, nil
}

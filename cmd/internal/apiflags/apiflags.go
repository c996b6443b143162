// Package apiflags has the flags of programs that serve policies and of their clients.
package apiflags

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/app"
)

// Default is a free port of this machine; the data directory says which.
const Default = "127.0.0.1:0"

// Serve are the flags of a process that serves policies.
type Serve struct {
	Listen          string
	auth, cert, key string
	plaintext       bool
}

// BindServe adds the flags to a command. Listen is the default of --api.
func BindServe(cmd *cobra.Command, listen string) *Serve {
	f := &Serve{}
	set := cmd.Flags()
	about := "address where policies are served and changed, over gRPC and REST"
	if listen == "" {
		about += " (default: none)"
	} else {
		about += ": a free port, which the data directory names; '' for none"
	}
	set.StringVar(&f.Listen, "api", listen, about)
	set.StringVar(&f.auth, "api-auth", "", "YAML file that says who may change policies; required where others than this machine reach --api")
	set.StringVar(&f.cert, "api-tls-cert", "", "certificate of the API, PEM")
	set.StringVar(&f.key, "api-tls-key", "", "key of the certificate, PEM")
	set.BoolVar(&f.plaintext, "api-plaintext", false, "serve other machines without TLS: something in front of us has it")
	return f
}

// API reads what the flags name. Its errors are the command line's fault.
func (f *Serve) API(ctx context.Context) (app.API, error) {
	a := app.API{Listen: f.Listen}
	if f.Listen == "" {
		return a, nil
	}
	var err error
	if f.auth != "" {
		if a.Auth, err = readAuth(ctx, f.auth); err != nil {
			return a, fmt.Errorf("--api-auth %s: %w", f.auth, err)
		}
	}
	if (f.cert == "") != (f.key == "") {
		return a, errors.New("--api-tls-cert and --api-tls-key go together")
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return a, fmt.Errorf("--api-tls-cert %s: %w", f.cert, err)
		}
		a.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	}
	if !api.OnLoopback(f.Listen) {
		switch {
		case a.Auth == nil:
			return a, fmt.Errorf("--api %s: other machines reach it, and could change policies: say who may with --api-auth FILE, or listen on 127.0.0.1", f.Listen)
		case a.TLS == nil && !f.plaintext:
			return a, fmt.Errorf("--api %s: passwords and tokens would cross the network in the clear: give --api-tls-cert and --api-tls-key, or --api-plaintext where something in front of us has TLS", f.Listen)
		}
	}
	return a, nil
}

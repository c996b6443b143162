// Package apiflags defines the flags of programs that serve the policy API, and of its clients.
package apiflags

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/settings"
	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/web"
)

// Default listens on a free port of the loopback interface; the data directory records which one.
const Default = "127.0.0.1:0"

// Serve holds the flags of a process that serves the policy API.
type Serve struct {
	Listen          string
	auth, cert, key string
	plaintext       bool
	proxies         []string
	lookout, logs   string
}

// BindServe adds the flags to a command. Listen is the default of --api.
func BindServe(cmd *cobra.Command, listen string) *Serve {
	f := &Serve{}
	set := cmd.Flags()
	about := "listen address of the policy API (gRPC and REST)"
	if listen == "" {
		about += " (default: none)"
	} else {
		about += " (default: a free port, recorded in the data directory; '' for none)"
	}
	set.StringVar(&f.Listen, "api", listen, about)
	settings.MayBeEmpty(cmd, "api")
	set.StringVar(&f.auth, "api-auth", "", "YAML file with the users and permissions of the policy API; required if other machines can reach --api")
	set.StringVar(&f.cert, "api-tls-cert", "", "TLS certificate of the policy API, PEM")
	set.StringVar(&f.key, "api-tls-key", "", "private key of the TLS certificate, PEM")
	set.BoolVar(&f.plaintext, "api-plaintext", false, "serve other machines without TLS, because a proxy in front terminates it")
	set.StringSliceVar(&f.proxies, "api-trusted-proxies", nil, "addresses or networks of proxies in front of --api, such as 10.0.0.0/8: limits count the clients that their X-Forwarded-For names (default: none)")
	set.StringVar(&f.lookout, "lookout-url", "", "address of Armada's Lookout for the page, such as https://lookout.example.com/?job={job}: it may name {job}, {queue} and {jobset}")
	set.StringVar(&f.logs, "logs-url", "", "address of the logs of a run for the page: it may name {job}, {run}, {pod}, {namespace}, {node}, {queue}, {jobset}, {from} and {to}")
	return f
}

// API loads the files that the flags name. Its errors are usage errors.
func (f *Serve) API(ctx context.Context) (app.API, error) {
	a := app.API{Listen: f.Listen}
	if f.Listen == "" {
		return a, nil
	}
	var err error
	if a.Lookout, err = web.ParseLink(f.lookout); err != nil {
		return a, fmt.Errorf("--lookout-url: %w", err)
	}
	if a.Logs, err = web.ParseLink(f.logs); err != nil {
		return a, fmt.Errorf("--logs-url: %w", err)
	}
	if a.Proxies, err = networks(f.proxies); err != nil {
		return a, fmt.Errorf("--api-trusted-proxies: %w", err)
	}
	if f.auth != "" {
		if a.Auth, err = readAuth(f.auth); err != nil {
			return a, fmt.Errorf("--api-auth %s: %w", f.auth, err)
		}
	}
	if (f.cert == "") != (f.key == "") {
		return a, errors.New("--api-tls-cert and --api-tls-key: give both or neither")
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
			return a, fmt.Errorf("--api %s: other machines could reach this address and change policies: set permissions with --api-auth FILE, or listen on 127.0.0.1", f.Listen)
		case a.TLS == nil && !f.plaintext:
			return a, fmt.Errorf("--api %s: passwords and tokens would cross the network unencrypted: give --api-tls-cert and --api-tls-key, or --api-plaintext if a proxy in front terminates TLS", f.Listen)
		}
	}
	return a, nil
}

// networks reads addresses and networks.
func networks(texts []string) (all []netip.Prefix, err error) {
	for _, text := range texts {
		net, err := netip.ParsePrefix(text)
		if at, failed := netip.ParseAddr(text); failed == nil {
			net, err = at.Unmap().Prefix(at.Unmap().BitLen())
		}
		if err != nil {
			return nil, fmt.Errorf("%q: want an address such as 10.0.0.7, or a network such as 10.0.0.0/8", text)
		}
		all = append(all, net.Masked())
	}
	return all, nil
}

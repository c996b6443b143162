package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/node"
	"github.com/refloat/refloat/internal/policy"
)

// client is how a command finds the server of policies, and who it says it is.
type client struct {
	data, server        string
	tokenFile, user, ca string
	plaintext           bool
	timeout             time.Duration
}

func (c *client) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.data, "data", "", "data directory of the refloatctl up, or the evaluator, to ask")
	f.StringVar(&c.server, "server", os.Getenv("REFLOAT_SERVER"), "or where policies are served: the --api of an evaluator on another machine (also REFLOAT_SERVER)")
	f.StringVar(&c.tokenFile, "token-file", os.Getenv("REFLOAT_TOKEN_FILE"), "file with a bearer token (also REFLOAT_TOKEN_FILE, or the token in REFLOAT_TOKEN)")
	f.StringVar(&c.user, "user", os.Getenv("REFLOAT_USER"), "user, with the password in REFLOAT_PASSWORD (also REFLOAT_USER)")
	f.StringVar(&c.ca, "server-ca", os.Getenv("REFLOAT_SERVER_CA"), "certificates that the server's is signed by, PEM (default: those of this machine)")
	f.BoolVar(&c.plaintext, "server-plaintext", false, "talk to another machine without TLS")
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "how long to wait for the answer")
}

// policies calls the server, and closes the connection after.
func (c *client) policies(ctx context.Context, call func(context.Context, pb.PoliciesClient) error) error {
	if err := c.find(ctx); err != nil {
		return err
	}
	secure, err := c.credentials()
	if err != nil {
		return usageError{err}
	}
	auth, err := c.identity()
	if err != nil {
		return usageError{err}
	}
	conn, err := grpc.NewClient("passthrough:///"+c.server, grpc.WithTransportCredentials(secure), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return usageError{fmt.Errorf("--server %s: %w", c.server, err)}
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, auth...)
	return c.said(call(ctx, pb.NewPoliciesClient(conn)))
}

// startsWithin is how long a server that was started just now is waited for.
const startsWithin = 3 * time.Second

// find finds the server that a data directory names.
func (c *client) find(ctx context.Context) error {
	if c.data == "" {
		if c.server == "" {
			return usageError{errors.New("--data DIR or --server HOST:PORT is required: who is to be asked")}
		}
		return nil
	}
	tick, late := time.NewTicker(50*time.Millisecond), time.NewTimer(startsWithin)
	defer tick.Stop()
	for {
		address, err := os.ReadFile(node.Dir(c.data).APIAddress())
		if !errors.Is(err, os.ErrNotExist) {
			c.server = strings.TrimSpace(string(address))
			return err
		}
		select {
		case <-tick.C:
		case <-late.C:
			return fmt.Errorf("nobody serves policies on %s: is `refloatctl up` running there?", c.data)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *client) credentials() (credentials.TransportCredentials, error) {
	if c.ca == "" && (c.plaintext || api.OnLoopback(c.server)) {
		return insecure.NewCredentials(), nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.ca != "" {
		text, err := os.ReadFile(c.ca)
		if err != nil {
			return nil, fmt.Errorf("--server-ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--server-ca %s: no certificate in it", c.ca)
		}
	}
	return credentials.NewTLS(config), nil
}

// identity are the headers that say who asks.
func (c *client) identity() ([]string, error) {
	token := os.Getenv("REFLOAT_TOKEN")
	if c.tokenFile != "" {
		text, err := os.ReadFile(c.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
		token = strings.TrimSpace(string(text))
	}
	switch {
	case token != "":
		return []string{"authorization", "Bearer " + token}, nil
	case c.user != "":
		secret := c.user + ":" + os.Getenv("REFLOAT_PASSWORD")
		return []string{"authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte(secret))}, nil
	}
	if u, err := user.Current(); err == nil {
		return []string{"refloat-user", u.Username}, nil
	}
	return nil, nil
}

// said is an answer's error in words for people.
func (c *client) said(err error) error {
	s, ok := status.FromError(err)
	switch {
	case err == nil || !ok:
		return err
	case s.Code() == codes.Unavailable && strings.Contains(s.Message(), "connection error"), s.Code() == codes.DeadlineExceeded:
		return fmt.Errorf("nobody answers at %s: is `refloatctl up` or an evaluator with --api running there? (%s)", c.server, s.Message())
	}
	return errors.New(s.Message())
}

// documentsOf are the resources of a set as a request holds them.
func documentsOf(set *policy.Set) ([]*structpb.Struct, error) {
	var docs []*structpb.Struct
	for _, id := range set.Resources() {
		text, err := set.JSON(id)
		if err != nil {
			return nil, err
		}
		doc := &structpb.Struct{}
		if err := doc.UnmarshalJSON(text); err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		docs = append(docs, doc)
	}
	return docs, nil
}

// setOf are the resources of an answer as a set.
func setOf(resources []*pb.Resource) (*policy.Set, error) {
	var files []policy.File
	for _, r := range resources {
		text, err := json.Marshal(r.Document.AsMap())
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", r.Kind, r.Name, err)
		}
		files = append(files, policy.File{Name: r.Kind + " " + r.Name, Data: text})
	}
	set, err := policy.Parse(files)
	if err != nil {
		return nil, fmt.Errorf("the server's policies are not understood here: upgrade refloatctl: %w", err)
	}
	return set, nil
}

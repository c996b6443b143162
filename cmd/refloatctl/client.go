package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
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

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/jobs"
	jobspb "github.com/refloat/refloat/internal/api/jobs/pb"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/query"
)

// client holds how a command reaches the policy API, and its credentials.
type client struct {
	data, server        string
	tokenFile, user, ca string
	plaintext           bool
	fromLog             bool           // no server answers: what is read comes from the policies log of data
	timeout             time.Duration  // 0: none
	cmd                 *cobra.Command // with these flags; nil: there is no --data
}

func (c *client) bind(cmd *cobra.Command) {
	bindData(cmd, &c.data, "data `directory` of the running refloatctl up or evaluator")
	c.bindServer(cmd)
	c.cmd = cmd
}

// bindData adds --data to a command that has no file of settings.
func bindData(cmd *cobra.Command, data *string, help string) {
	cmd.Flags().StringVar(data, "data", os.Getenv("REFLOAT_DATA"), help+" (also REFLOAT_DATA)")
}

// place checks that the flags name one place. The command line takes precedence over the environment.
func (c *client) place() error {
	if c.cmd == nil || !c.cmd.Flags().Changed("server") {
		return nil
	}
	if c.cmd.Flags().Changed("data") {
		return usageError{errors.New("--server and --data name two places to ask: give only one")}
	}
	c.data = ""
	return nil
}

// bindServer adds the flags that name servers, and the caller's credentials.
func (c *client) bindServer(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.server, "server", os.Getenv("REFLOAT_SERVER"), "addresses of policy APIs, separated by commas: the --api of evaluators on other machines (also REFLOAT_SERVER)")
	f.StringVar(&c.tokenFile, "token-file", os.Getenv("REFLOAT_TOKEN_FILE"), "file with a bearer token (also REFLOAT_TOKEN_FILE, or the token in REFLOAT_TOKEN)")
	f.StringVar(&c.user, "user", os.Getenv("REFLOAT_USER"), "user name, with the password in REFLOAT_PASSWORD (also REFLOAT_USER)")
	f.StringVar(&c.ca, "server-ca", os.Getenv("REFLOAT_SERVER_CA"), "CA certificates to verify the server's certificate with, PEM (default: the system's)")
	f.BoolVar(&c.plaintext, "server-plaintext", false, "connect to another machine without TLS")
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "how long to wait for a response")
}

// errAway reports that no server answers.
var errAway = errors.New("no server answers")

// reading calls a server as policies does. If none runs on the data directory, it reads the policies log there.
func (c *client) reading(ctx context.Context, call func(context.Context, pb.PoliciesClient) error) error {
	if err := c.place(); err != nil {
		return err
	}
	dir := app.Dir(c.data)
	if c.data == "" || !dir.HasPolicies() {
		return c.policies(ctx, call)
	}
	if _, err := os.Stat(dir.APIAddress()); err == nil {
		// A server that answers wrongly, for instance without TLS, is one.
		if err := c.policies(ctx, call); !errors.Is(err, errAway) || !strings.Contains(err.Error(), "connection refused") {
			return err
		}
	}
	c.fromLog = true
	return dir.ReadPolicyLog(time.Now, func(service *api.Service) error { return serverError(call(ctx, offline{service: service})) })
}

// offline answers what needs no server.
type offline struct {
	pb.PoliciesClient // nil: nothing else is called
	service           *api.Service
}

func (o offline) List(ctx context.Context, r *pb.ListRequest, _ ...grpc.CallOption) (*pb.ListResponse, error) {
	return o.service.List(ctx, r)
}

func (o offline) Get(ctx context.Context, r *pb.GetRequest, _ ...grpc.CallOption) (*pb.Resource, error) {
	return o.service.Get(ctx, r)
}

func (o offline) History(ctx context.Context, r *pb.HistoryRequest, _ ...grpc.CallOption) (*pb.HistoryResponse, error) {
	return o.service.History(ctx, r)
}

// policyReader reads generations with a client.
type policyReader struct{ pb.PoliciesClient }

// List implements query.PolicyReader.
func (r policyReader) List(ctx context.Context, asked *pb.ListRequest) (*pb.ListResponse, error) {
	return r.PoliciesClient.List(ctx, asked)
}

// generations returns the history of the policies, newest first, and the generation of it that each text names: those of flags.
func generations(ctx context.Context, c pb.PoliciesClient, flags map[string]string) ([]*pb.Generation, map[string]uint64, error) {
	h, err := c.History(ctx, &pb.HistoryRequest{Limit: math.MaxInt32})
	if err != nil {
		return nil, nil, err
	}
	named := map[string]uint64{}
	for flag, text := range flags {
		if named[flag], err = query.GenerationAt(text, h.Generations, time.Now()); err != nil {
			return nil, nil, usageError{fmt.Errorf("%s %w", flag, err)}
		}
	}
	return h.Generations, named, nil
}

// policies calls the first of the named servers that responds.
func (c *client) policies(ctx context.Context, call func(context.Context, pb.PoliciesClient) error) error {
	if err := c.find(ctx); err != nil {
		return err
	}
	return serverError(c.first(ctx, func(ctx context.Context, conn *grpc.ClientConn) error { return call(ctx, pb.NewPoliciesClient(conn)) }))
}

// questions is where the servers are asked about jobs.
func (c *client) questions() *jobs.Client {
	return &jobs.Client{Call: func(ctx context.Context, call func(context.Context, jobspb.JobsClient) error) error {
		return c.first(ctx, func(ctx context.Context, conn *grpc.ClientConn) error { return call(ctx, jobspb.NewJobsClient(conn)) })
	}}
}

// jobAnswers is where what was read with reading is asked about jobs.
func (c *client) jobAnswers() query.Answers {
	if c.fromLog {
		return (&deployment{data: c.data}).source(nil)
	}
	return c.questions()
}

// first calls the first of the named servers that responds.
func (c *client) first(ctx context.Context, call func(context.Context, *grpc.ClientConn) error) error {
	var away error
	for _, server := range c.servers() {
		err := c.connected(ctx, server, call)
		if s, ok := status.FromError(err); !ok || err == nil || !nobodyThere(s) {
			return err
		}
		away = errors.Join(away, fmt.Errorf("%w at %s: is `refloatctl up` or an evaluator with --api running there? (%s)", errAway, server, status.Convert(err).Message()))
	}
	return away
}

// status asks all named servers what is in force, and returns the servers that do not respond.
func (c *client) status(ctx context.Context) (all []*pb.StatusResponse, away []string, err error) {
	for _, server := range c.servers() {
		err := c.connected(ctx, server, func(ctx context.Context, conn *grpc.ClientConn) error {
			s, err := pb.NewPoliciesClient(conn).Status(ctx, &pb.StatusRequest{})
			if err == nil {
				all = append(all, s)
			}
			return err
		})
		switch s, ok := status.FromError(err); {
		case err == nil:
		case ok && nobodyThere(s):
			away = append(away, server)
		default:
			return nil, nil, serverError(err)
		}
	}
	return all, away, nil
}

// servers are the named servers. The address of a page is that of a server, too.
func (c *client) servers() []string {
	all := strings.Split(c.server, ",")
	for i, address := range all {
		if u, err := url.Parse(address); err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Port() != "" {
			all[i] = u.Host
		}
	}
	return all
}

// connected calls one server, and closes the connection afterwards.
func (c *client) connected(ctx context.Context, server string, call func(context.Context, *grpc.ClientConn) error) error {
	if _, _, err := net.SplitHostPort(server); err != nil {
		return usageError{fmt.Errorf("--server %s: want HOST:PORT, such as evaluator-0:8090", server)}
	}
	secure, err := c.credentials(server)
	if err != nil {
		return usageError{err}
	}
	auth, err := c.identity()
	if err != nil {
		return usageError{err}
	}
	signedIn := false
	if len(auth) == 0 || auth[0] != "authorization" {
		token, err := kept(ctx, server)
		if err != nil {
			return err
		}
		if signedIn = token != ""; signedIn {
			auth = []string{"authorization", "Bearer " + token}
		}
	}
	conn, err := grpc.NewClient("passthrough:///"+server, grpc.WithTransportCredentials(secure), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return usageError{fmt.Errorf("--server %s: %w", server, err)}
	}
	defer conn.Close()
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	err = call(metadata.AppendToOutgoingContext(ctx, auth...), conn)
	if s, ok := status.FromError(err); ok && s.Code() == codes.Unauthenticated {
		hint := "refloatctl login --server " + server + " signs in, if its users have an identity provider"
		if signedIn {
			hint = "it refuses your sign-in: run refloatctl login --server " + server
		}
		return status.Errorf(codes.Unauthenticated, "%s (%s)", s.Message(), hint)
	}
	return err
}

// startsWithin is how long to wait for a server that was just started.
const startsWithin = 3 * time.Second

// find finds the server that a data directory names.
func (c *client) find(ctx context.Context) error {
	if err := c.place(); err != nil {
		return err
	}
	if c.data == "" {
		if c.server == "" {
			return usageError{errors.New("--data DIR or --server HOST:PORT is required (or REFLOAT_DATA, REFLOAT_SERVER): the policy API to call")}
		}
		return nil
	}
	tick, late := time.NewTicker(50*time.Millisecond), time.NewTimer(startsWithin)
	defer tick.Stop()
	for {
		address, err := os.ReadFile(app.Dir(c.data).APIAddress())
		if !errors.Is(err, os.ErrNotExist) {
			c.server = strings.TrimSpace(string(address))
			return err
		}
		select {
		case <-tick.C:
		case <-late.C:
			return fmt.Errorf("no process serves the policy API of %s: is `refloatctl up` running there?", c.data)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *client) credentials(server string) (credentials.TransportCredentials, error) {
	config, err := c.tls(server)
	if err != nil || config != nil {
		return credentials.NewTLS(config), err
	}
	return insecure.NewCredentials(), nil
}

// tls returns how a connection to a server is encrypted; nil: it is not.
func (c *client) tls(server string) (*tls.Config, error) {
	if c.ca == "" && (c.plaintext || api.OnLoopback(server)) {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.ca != "" {
		text, err := os.ReadFile(c.ca)
		if err != nil {
			return nil, fmt.Errorf("--server-ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--server-ca %s: the file contains no certificate", c.ca)
		}
	}
	return config, nil
}

// identity returns the headers that authenticate the caller.
func (c *client) identity() ([]string, error) {
	token := os.Getenv("REFLOAT_TOKEN")
	if c.tokenFile != "" {
		text, err := os.ReadFile(c.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
		if token = strings.TrimSpace(string(text)); token == "" {
			return nil, fmt.Errorf("--token-file %s: the file is empty", c.tokenFile)
		}
	}
	password, given := os.LookupEnv("REFLOAT_PASSWORD")
	switch {
	case token != "" && c.user != "":
		return nil, errors.New("both a token (--token-file, REFLOAT_TOKEN) and a user (--user, REFLOAT_USER) are given: give only one")
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, errors.New("the token (--token-file, REFLOAT_TOKEN) contains spaces or several lines: give a single token")
	case token != "":
		return []string{"authorization", "Bearer " + token}, nil
	case c.user != "" && !given:
		return nil, fmt.Errorf("--user %s: give the password in REFLOAT_PASSWORD", c.user)
	case c.user != "":
		return []string{"authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte(c.user+":"+password))}, nil
	}
	if u, err := user.Current(); err == nil {
		return []string{"refloat-user", u.Username}, nil
	}
	return nil, nil
}

func nobodyThere(s *status.Status) bool {
	return s.Code() == codes.Unavailable && strings.Contains(s.Message(), "connection error") || s.Code() == codes.DeadlineExceeded
}

// serverError turns an RPC error into a message for people.
func serverError(err error) error {
	if s, ok := status.FromError(err); ok && err != nil {
		if s.Code() == codes.Canceled {
			return fmt.Errorf("%w: a change may have been made; `refloatctl history` shows it", context.Canceled)
		}
		return errors.New(s.Message())
	}
	return err
}

package policysync

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
)

// Config configures a Follower. Address, Store, Log and Now are required.
type Config struct {
	Address string        // HOST:PORT of the server's gRPC API
	Every   time.Duration // polling interval; default Every
	TLS     *tls.Config   // nil: plain text
	// Authorization returns the header of that name; called before every poll; nil: no
	// header.
	Authorization func() (string, error)
	Store         *policylog.Store
	Log           *slog.Logger
	Now           func() time.Time
	Polled        func(*pb.Source) // called with Source after every poll; may be nil
}

// Every is the default polling interval.
const Every = 10 * time.Second

const (
	timeout  = 30 * time.Second // timeout of one request or change
	maxBytes = 64 << 20         // of one response
	maxMoved = 10               // attempts of one poll while others change policies
)

// Follower follows a server. Poll and Run are for one goroutine; Source is safe for
// concurrent use.
type Follower struct {
	Config
	conn *grpc.ClientConn

	last    *answer // from which generation applied was made
	applied uint64  // the newest generation that this follower has seen

	mu     sync.Mutex
	source *pb.Source
}

// New returns a follower. It connects at the first poll.
func New(c Config) (*Follower, error) {
	if c.Every <= 0 {
		c.Every = Every
	}
	conn, err := dial(&c)
	if err != nil {
		return nil, fmt.Errorf("follow Armada at %s: %w", c.Address, err)
	}
	return &Follower{Config: c, conn: conn, source: &pb.Source{Address: c.Address}}, nil
}

func (c *Config) options() []grpc.DialOption {
	secure := insecure.NewCredentials()
	if c.TLS != nil {
		secure = credentials.NewTLS(c.TLS)
	}
	again := backoff.DefaultConfig
	again.MaxDelay = c.Every
	return []grpc.DialOption{
		grpc.WithTransportCredentials(secure),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxBytes)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: 5 * time.Second}),
	}
}

// Close closes the connection.
func (f *Follower) Close() error { return f.conn.Close() }

// Author is the author of the generations that come from this server.
func (f *Follower) Author() string { return "armada " + f.Address }

// Run polls until ctx ends.
func (f *Follower) Run(ctx context.Context) error {
	ticker := time.NewTicker(f.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			_ = f.Poll(ctx) // Poll logs its error
		}
	}
}

// Poll reads the server once, and writes a generation if something has changed. It logs
// its error and reports it through Source; the policies that were read last stay in
// force.
func (f *Follower) Poll(ctx context.Context) error {
	err := f.poll(ctx)
	if ctx.Err() == nil {
		f.note(err)
	}
	return err
}

// errMoved reports a generation that is newer than the server's response.
var errMoved = errors.New("policies changed while they were read from the server")

func (f *Follower) poll(ctx context.Context) error {
	for range maxMoved {
		before, err := f.newest(ctx)
		if err != nil {
			return err
		}
		a, err := f.read(ctx)
		if err != nil {
			return err
		}
		if before == f.applied && reflect.DeepEqual(a, f.last) {
			return nil
		}
		if err := f.apply(ctx, before, a); !errors.Is(err, errMoved) {
			return err
		}
	}
	return errMoved
}

func (f *Follower) newest(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	snap, err := f.Store.Newest(ctx)
	return snap.Generation(), err
}

// apply writes a generation from an answer, if that changes anything and no other
// generation has been written since before the answer was requested.
func (f *Follower) apply(ctx context.Context, before uint64, a *answer) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var not []string
	var missing string
	made, err := f.Store.Do(ctx, policylog.Edit{
		Author: f.Author(), Reason: "as Armada has it",
		Make: func(now policylog.Snapshot) (*policyfile.Set, []policylog.Override, error) {
			if now.Generation() != before {
				return nil, nil, errMoved
			}
			set, left, err := a.onto(now.Base)
			not, missing = left, missingDefault(set)
			return set, now.ActiveOverrides(), err
		},
	})
	if err != nil {
		return err
	}
	f.last, f.applied = a, made.Number
	f.logGeneration(&made, a)
	f.notUnderstood(not)
	f.missingDefault(missing)
	return nil
}

// missingDefault returns the default policy that the settings name but the set lacks,
// or "".
func missingDefault(set *policyfile.Set) string {
	if set == nil {
		return ""
	}
	if missing := set.Missing(policyfile.ID{Kind: policyfile.KindSettings}); len(missing) > 0 {
		return missing[0]
	}
	return ""
}

// missingDefault records the missing default policy, and logs when that changes. While
// it is missing, failed runs of queues without their own policy are not retried.
func (f *Follower) missingDefault(name string) {
	f.mu.Lock()
	was := f.source.MissingDefault
	f.source.MissingDefault = name
	f.mu.Unlock()
	switch {
	case name != "" && name != was:
		f.Log.Warn("the default policy of the settings does not exist in armada, so failed runs of queues without their own policy are not retried; "+
			"create it in armada, or apply RetrySettings that name another one", slog.String("armada", f.Address), slog.String("policy", name))
	case name == "" && was != "":
		f.Log.Info("default policy exists again", slog.String("armada", f.Address))
	}
}

// logGeneration logs a new generation.
func (f *Follower) logGeneration(made *policylog.Outcome, a *answer) {
	if !made.Made {
		return
	}
	gone := 0
	for _, c := range made.Changes {
		if c.Kind == policyfile.KindPolicy && c.Op == policylog.Deleted {
			gone++
		}
	}
	attrs := []any{
		slog.String("armada", f.Address), slog.Uint64("generation", made.Number), slog.Int("changes", len(made.Changes)),
		slog.Int("policies", len(a.policies)), slog.Int("policies_gone", gone),
	}
	if len(a.policies) == 0 && gone > 0 {
		f.Log.Warn("all retry policies were deleted in armada, so none are in force", attrs...)
		return
	}
	f.Log.Info("policies updated from armada", attrs...)
}

func (f *Follower) notUnderstood(not []string) {
	f.mu.Lock()
	news := !slices.Equal(not, f.source.NotUnderstood)
	f.source.NotUnderstood = not
	f.mu.Unlock()
	if news && len(not) > 0 {
		f.Log.Warn("some policies or bindings of armada cannot be used here and are ignored", slog.String("armada", f.Address), slog.Int("count", len(not)), slog.Any("what", not[:min(len(not), 20)]))
	}
}

// note records the result of a poll, and logs when it changes.
func (f *Follower) note(err error) {
	f.mu.Lock()
	s, now := f.source, timestamppb.New(f.Now())
	was := s.Error
	if err == nil {
		s.Error, s.FailingSince, s.LastGood = "", nil, now
	} else {
		s.Error = err.Error()
		if s.FailingSince == nil {
			s.FailingSince = now
		}
	}
	f.mu.Unlock()
	switch {
	case err == nil && was != "":
		f.Log.Info("polling armada works again", slog.String("armada", f.Address))
	case err != nil && was == "":
		f.Log.Warn("polling armada failed; the policies that were read last stay in force", slog.String("armada", f.Address), slog.Any("error", err))
	}
	if f.Polled != nil {
		f.Polled(f.Source())
	}
}

// Source reports the state of following.
func (f *Follower) Source() *pb.Source {
	f.mu.Lock()
	defer f.mu.Unlock()
	return proto.CloneOf(f.source)
}

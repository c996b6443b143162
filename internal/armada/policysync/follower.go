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
	"github.com/refloat/refloat/internal/policy/policylog"
)

// Config says which server is followed, and how it is asked. Address, Store, Log and
// Now are required.
type Config struct {
	Address string        // HOST:PORT of its gRPC
	Every   time.Duration // how often it is asked; default Every
	TLS     *tls.Config   // nil: none
	// Authorization is the header of that name, asked for anew with each question;
	// nil: none.
	Authorization func() (string, error)
	Store         *policylog.Store
	Log           *slog.Logger
	Now           func() time.Time
	Polled        func(*pb.Source) // called with Source after every poll; nil: nobody is
}

// Every is how often a server is asked, where nobody says otherwise.
const Every = 10 * time.Second

const (
	patience = 30 * time.Second // for one answer
	maxBytes = 64 << 20         // of an answer
	maxMoved = 10               // times that others may change policies while one poll looks
)

// Follower follows a server. Poll and Run are for one goroutine, Source is for all.
type Follower struct {
	Config
	conn *grpc.ClientConn

	last    *answer // that the newest generation was made of
	applied uint64  // that generation

	mu     sync.Mutex
	source *pb.Source
}

// New makes a follower; it connects when it first polls.
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

// Close ends the connection.
func (f *Follower) Close() error { return f.conn.Close() }

// Author is who the generations of this server are by.
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
			_ = f.Poll(ctx) // it tells by itself
		}
	}
}

// Poll reads the server once, and makes a generation of what changed. Its error is
// logged, and told by Source; what was read before stays in force.
func (f *Follower) Poll(ctx context.Context) error {
	err := f.poll(ctx)
	if ctx.Err() == nil {
		f.note(err)
	}
	return err
}

// errMoved says that there is a generation which the answer may be older than.
var errMoved = errors.New("others changed policies meanwhile")

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
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	snap, err := f.Store.Newest(ctx)
	return snap.Generation(), err
}

// apply makes a generation of an answer, where that changes anything and the newest
// is still the one from before it was asked for.
func (f *Follower) apply(ctx context.Context, before uint64, a *answer) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var not []string
	var missing string
	made, err := f.Store.Do(ctx, policylog.Edit{
		Author: f.Author(), Reason: "as Armada has it",
		Make: func(now policylog.Snapshot) (*policyfile.Set, []policylog.Brake, error) {
			if now.Generation() != before {
				return nil, nil, errMoved
			}
			set, left, err := a.onto(now.Unbraked)
			not, missing = left, missingDefault(set)
			return set, now.BrakesOn(), err
		},
	})
	if err != nil {
		return err
	}
	f.last, f.applied = a, made.Number
	f.tell(&made, a)
	f.notUnderstood(not)
	f.missingDefault(missing)
	return nil
}

// missingDefault is the policy that the settings name as default but the set
// does not have; empty: none is missing.
func missingDefault(set *policyfile.Set) string {
	if set == nil {
		return ""
	}
	if missing := set.Missing(policyfile.ID{Kind: policyfile.KindSettings}); len(missing) > 0 {
		return missing[0]
	}
	return ""
}

// missingDefault records the missing default policy, and logs a change: while it is
// missing, failed runs of queues without a policy of their own are not retried.
func (f *Follower) missingDefault(name string) {
	f.mu.Lock()
	was := f.source.MissingDefault
	f.source.MissingDefault = name
	f.mu.Unlock()
	switch {
	case name != "" && name != was:
		f.Log.Warn("the settings name a default policy that armada does not have: failed runs of queues without a policy of their own are not retried; "+
			"create it in armada, or apply RetrySettings with another default", slog.String("armada", f.Address), slog.String("policy", name))
	case name == "" && was != "":
		f.Log.Info("no default policy is missing any more", slog.String("armada", f.Address))
	}
}

// tell logs a generation that was made.
func (f *Follower) tell(made *policylog.Outcome, a *answer) {
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
		f.Log.Warn("armada has no retry policies any more, and so we have none", attrs...)
		return
	}
	f.Log.Info("policies followed", attrs...)
}

func (f *Follower) notUnderstood(not []string) {
	f.mu.Lock()
	news := !slices.Equal(not, f.source.NotUnderstood)
	f.source.NotUnderstood = not
	f.mu.Unlock()
	if news && len(not) > 0 {
		f.Log.Warn("not all that armada says can be used here", slog.String("armada", f.Address), slog.Int("count", len(not)), slog.Any("what", not[:min(len(not), 20)]))
	}
}

// note keeps what became of a poll, and logs where that is news.
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
		f.Log.Info("policies can be followed again", slog.String("armada", f.Address))
	case err != nil && was == "":
		f.Log.Warn("policies cannot be followed; those that were read last stay in force", slog.String("armada", f.Address), slog.Any("error", err))
	}
	if f.Polled != nil {
		f.Polled(f.Source())
	}
}

// Source says how it stands with following.
func (f *Follower) Source() *pb.Source {
	f.mu.Lock()
	defer f.mu.Unlock()
	return proto.CloneOf(f.source)
}

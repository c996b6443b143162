package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/jobs"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/projection"
	"github.com/refloat/refloat/internal/web"
)

// API configures the policy API.
type API struct {
	Listen string      // listen address; empty: no API
	Auth   *api.Auth   // nil: no authentication
	TLS    *tls.Config // nil: no TLS
	// Proxies are those whose X-Forwarded-For names the clients that limits count; none: no proxy is trusted.
	Proxies []netip.Prefix
	// JobDB is the URL of the job database from which questions about jobs are answered; empty: the one that this
	// process writes, if it writes one.
	JobDB string
	// Program is the version of this program, for reports of verifications.
	Program string
	// Lookout and Logs are those of web.Config.
	Lookout, Logs web.Link
}

const (
	writesPerSecond = 10
	writesAtOnce    = 50
)

// serveAPI serves the policy API.
func (n *node) serveAPI(p *parts) error {
	if n.API.Listen == "" {
		return nil
	}
	l, err := net.Listen("tcp", n.API.Listen)
	if err != nil {
		return fmt.Errorf("serve the API: %w (choose another --api, or none with --api '')", err)
	}
	service := &api.Service{
		Store: n.policies, Auth: n.API.Auth, Proxies: n.API.Proxies, Now: n.Now, Fixed: n.fixed(),
		Partitions: n.inForce.list, Writes: rate.NewLimiter(writesPerSecond, writesAtOnce), Log: n.Log,
	}
	service.Queues = n.queues
	if n.followed != nil {
		service.Source = n.followed.Source
	}
	reader := newJobReader(n)
	source := n.source(reader)
	service.Orders = n.orders(&source)
	if source.Jobs != nil {
		service.Categories = func(ctx context.Context, text string) ([]string, error) {
			names, err := source.Names(ctx, []string{"category"}, text, jobdb.MaxNames)
			return names["category"], err
		}
	}
	answers := &jobs.Service{Source: &source, Now: n.Now, Log: n.Log, Program: n.API.Program}
	handler, err := api.Handler(service, answers.Questions(), n.Log)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	p.closes("job database of the API", reader.Close)
	if handler, err = n.withPage(service, handler, reader); err != nil {
		return errors.Join(err, l.Close())
	}
	server := api.Server(handler, n.API.TLS)
	scheme := "http"
	if n.API.TLS != nil {
		scheme = "https"
	}
	address := n.Data.APIAddress()
	if err := errors.Join(os.MkdirAll(string(n.Data), 0o750), writeFile(address, []byte(l.Addr().String()+"\n"))); err != nil {
		return errors.Join(fmt.Errorf("record the API's address: %w", err), l.Close())
	}
	// Whoever waits for this line may call the server by the data directory.
	n.Log.Info("serving the page and the policy API (gRPC and REST)", slog.String("address", l.Addr().String()), slog.String("page", scheme+"://"+l.Addr().String()+"/"))
	if a := n.API.Auth; a != nil && a.OIDC != nil {
		p.run("identity provider", func(ctx context.Context) error { return a.OIDC.Await(ctx, n.Log) })
	}
	p.run("API server", func(ctx context.Context) error {
		shutDown := make(chan struct{})
		context.AfterFunc(ctx, func() {
			defer close(shutDown)
			_ = os.Remove(address) // so that clients do not connect to a closed port
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			if server.Shutdown(ctx) != nil {
				_ = server.Close()
			}
		})
		serve := server.Serve
		if n.API.TLS != nil {
			serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
		}
		if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		<-shutDown
		return nil
	})
	return nil
}

// queues lists the queues of the jobs in the partitions that this process owns, and counts the others.
func (n *node) queues() (all []string, elsewhere int, err error) {
	elsewhere = n.backend.Events.Partitions()
	n.stores.Range(func(_, store any) bool {
		var queues []string
		queues, err = store.(*projection.Store).Queues()
		all = append(all, queues...)
		elsewhere--
		return err == nil
	})
	return all, elsewhere, err
}

// fixed returns what cannot be changed over the API, and why.
func (n *node) fixed() api.Fixed {
	switch {
	case n.Policies != "":
		return api.Fixed{Refused: n.waiting.Load, Why: "policies, queues and settings come from the files of " + n.Policies + ": change the files; changes take effect when the files have been unchanged for " + n.PolicySettle.String()}
	case n.Follow != nil:
		return api.Fixed{PoliciesOnly: true, Why: fmt.Sprintf("policies, and which of them queues name, come from Armada at %s: change them there (with armadactl); changes take effect here within %v",
			n.Follow.Address, n.Follow.every())}
	}
	return api.Fixed{}
}

// inForce holds the policy generation in force of each partition that this process decides.
type inForce struct {
	mu         sync.Mutex
	partitions map[int]*pb.PartitionStatus
}

// set records a generation. If it is already in force, the time since which it is stays.
func (f *inForce) set(partition int, generation uint64, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.partitions[partition]; p != nil && p.Generation == generation {
		return
	}
	if f.partitions == nil {
		f.partitions = map[int]*pb.PartitionStatus{}
	}
	f.partitions[partition] = &pb.PartitionStatus{Partition: int32(partition), Generation: generation, Since: timestamppb.New(now)}
}

func (f *inForce) leave(partition int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.partitions, partition)
}

// has reports whether this process decides a partition.
func (f *inForce) has(partition int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.partitions[partition] != nil
}

func (f *inForce) list() []*pb.PartitionStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(maps.Values(f.partitions), func(a, b *pb.PartitionStatus) int { return int(a.Partition - b.Partition) })
}

// writeFile replaces a file atomically: readers see the old content or the new.
func writeFile(path string, b []byte) error {
	if err := os.WriteFile(path+".new", b, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/query"
	"github.com/refloat/refloat/internal/web"
)

// withPage serves the page beside the API, on the same port.
func (n *node) withPage(service *api.Service, rest http.Handler, jobs *jobReader) (http.Handler, error) {
	page, err := web.Open(web.Config{API: service, Query: n.source(jobs), Now: n.Now, Log: n.Log, Lookout: n.API.Lookout, Logs: n.API.Logs})
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if api.Serves(r) {
			rest.ServeHTTP(w, r)
			return
		}
		if strings.HasPrefix(r.URL.Path, api.SignInPath) {
			service.SignIn(w, r)
			return
		}
		page.ServeHTTP(w, r)
	}), nil
}

// source is what questions about this deployment are answered from.
func (n *node) source(jobs *jobReader) query.Source {
	s := query.Source{
		Whole: &n.whole, Partitions: n.partitionsHere,
		Logs: func(ctx context.Context, use func(audit.Logs) error) error {
			return use(audit.Logs{
				Events: eventlog.ToEnd(ctx, n.backend.Events), Decisions: eventlog.ToEnd(ctx, n.backend.Decisions), Policies: eventlog.ToEnd(ctx, n.backend.Policies),
			})
		},
		Policies: func(_ context.Context, use func(*policylog.Store) error) error { return use(n.policies) },
	}
	if n.Ingest || n.API.JobDB != "" {
		s.Jobs = jobs.view
	}
	return s
}

// partitionsHere returns what this process knows about the partitions that it decides, or refuses to.
func (n *node) partitionsHere(context.Context) (all []query.Partition, err error) {
	for _, p := range n.inForce.list() {
		one := query.Partition{Partition: int(p.Partition), Here: true, Owner: n.Instance, Generation: p.Generation, Since: p.Since.AsTime().Format(time.RFC3339Nano)}
		if r, ok := n.metrics.at(n.metrics.reached, one.Partition); ok {
			if end, err := n.backend.Events.End(one.Partition); err == nil {
				if lag, known := n.lagOf(r, end); known {
					one.LagSeconds = &lag
				}
				if end.Compare(r.at) <= 0 {
					one.Behind = new(float64)
				}
			}
			n.measureBehind(n.backend.Events, one.Partition, r, func(messages float64) { one.Behind = &messages })
		}
		all = append(all, one)
	}
	for p := range n.backend.Events.Partitions() {
		if why := n.metrics.health.refusal(evaluatorOf(p)); why != "" {
			all = append(all, query.Partition{Partition: p, Refused: why})
		}
	}
	return all, nil
}

// jobReader reads the job database, which the ingester may still have to create, and may replace.
type jobReader struct {
	node    *node
	opening chan struct{} // held by who opens it

	mu     sync.Mutex
	db     JobDBReader // nil: not open
	opened int64       // how many damaged ones the ingester had replaced then
	users  int
	gone   []JobDBReader // replaced ones, closed when nobody uses them
}

func newJobReader(n *node) *jobReader { return &jobReader{node: n, opening: make(chan struct{}, 1)} }

func (r *jobReader) view(ctx context.Context, read func(jobdb.Queries) error) error {
	db, err := r.open(ctx)
	if err != nil {
		return err
	}
	err = db.View(ctx, read)
	return errors.Join(err, r.leave())
}

func (r *jobReader) open(ctx context.Context) (JobDBReader, error) {
	if db := r.use(); db != nil {
		return db, nil
	}
	select {
	case r.opening <- struct{}{}:
		defer func() { <-r.opening }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the job database to be opened: %w", ctx.Err())
	}
	if db := r.use(); db != nil {
		return db, nil
	}
	replaced := r.node.jobDBsSetAside.Load()
	db, err := ReadJobDB(ctx, cmp.Or(r.node.API.JobDB, r.node.jobDB()))
	if errors.Is(err, jobdb.ErrAbsent) || r.node.Ingest && errors.Is(err, jobdb.ErrOlder) { // the ingester will see to it
		return nil, fmt.Errorf("%w: %w", jobdb.ErrUnavailable, err)
	}
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.db, r.opened = db, replaced
	r.users++
	return db, nil
}

// use returns the open job database to one more user; nil: it has to be opened.
func (r *jobReader) use() JobDBReader {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.db != nil && r.node.jobDBsSetAside.Load() != r.opened {
		r.gone, r.db = append(r.gone, r.db), nil
	}
	if r.db != nil {
		r.users++
	}
	return r.db
}

func (r *jobReader) leave() (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users--; r.users == 0 {
		for _, db := range r.gone {
			err = errors.Join(err, db.Close())
		}
		r.gone = nil
	}
	return err
}

// Close closes the job database. Nobody may use it then.
func (r *jobReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	for _, db := range append(r.gone, r.db) {
		if db != nil {
			err = errors.Join(err, db.Close())
		}
	}
	r.db, r.gone = nil, nil
	return err
}

package web_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/web"
)

// hostile is what users may put into names and messages.
const hostile = `"'><script>window.hacked=1</script><img src=x onerror="window.hacked=1"> {{.}} &amp; javascript:window.hacked=1 ` + "\u202e\u0007 \U0001f680"

// printable is what the API takes as a reason.
const printable = `"'><script>window.hacked=1</script><img src=x onerror="window.hacked=1"> {{.}} &amp;`

// long has no place to break a line.
var long = strings.Repeat("x", 300) + hostile

// hostilePartition holds rows that no event made.
const hostilePartition = 7

// deployment is a running node on a recorded history, with rows full of hostile text. All tests share it.
type deployment struct {
	url  string
	dir  app.Dir
	stop func() error
}

var (
	deployOnce sync.Once
	deployed   *deployment
	deployErr  error
)

func running(t *testing.T) *deployment {
	t.Helper()
	deployOnce.Do(func() {
		deployed, deployErr = deploy("../../examples/policies", "../../testdata/recordings/plain.jsonl.gz", func(ctx context.Context, dir app.Dir) error {
			return plant(ctx, dir, 0, 60)
		})
	})
	if deployErr != nil {
		t.Fatal(deployErr)
	}
	return deployed
}

// deploy starts a node on the history of a feed, and on what is planted after that.
func deploy(policies, feed string, plant func(context.Context, app.Dir) error, served ...app.API) (*deployment, error) {
	temp, err := os.MkdirTemp("", "refloat-page-")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := app.Config{
		Data: app.Dir(temp), Policies: policies, Feeds: []string{feed},
		Evaluate: true, Ingest: true, ExitWhenDrained: true, Log: slog.New(slog.DiscardHandler), Now: time.Now,
	}
	if err := errors.Join(app.Run(ctx, c), plant(ctx, c.Data)); err != nil {
		cancel()
		return nil, err
	}
	c.Feeds, c.ExitWhenDrained, c.Policies, c.API = nil, false, "", app.API{Listen: "127.0.0.1:0"}
	for _, c.API = range served {
		c.API.Listen = "127.0.0.1:0"
	}
	done := make(chan error, 1)
	go func() { done <- app.Run(ctx, c) }()
	d := &deployment{dir: c.Data, stop: func() error {
		cancel()
		return errors.Join(<-done, os.RemoveAll(temp))
	}}
	for deadline := time.Now().Add(time.Minute); ; {
		if address, err := os.ReadFile(c.Data.APIAddress()); err == nil {
			d.url = "http://" + strings.TrimSpace(string(address))
			return d, nil
		}
		select {
		case err := <-done:
			cancel()
			return nil, fmt.Errorf("the node ended: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			cancel()
			return nil, errors.New("the node does not serve the API")
		}
	}
}

func TestMain(m *testing.M) {
	code := m.Run()
	stopBrowser()
	if deployed != nil {
		if err := deployed.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// plant writes jobs, runs, decisions and a group with hostile text.
func plant(ctx context.Context, dir app.Dir, first, n int) error {
	db, err := app.OpenJobDB(ctx, dir.JobDBURL())
	if err != nil {
		return err
	}
	tx, err := db.Begin(ctx, hostilePartition)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	from := tx.Positions()
	to := from
	to.Chain.Seq++
	to.Chain.InTo = eventlog.Position{Ledger: 1, Entry: int64(to.Chain.Seq)}
	err = errors.Join(tx.Write(ctx, planted(to.Chain.Seq, first, n)), tx.Commit(ctx, from, to), db.Close())
	return err
}

func planted(seq uint64, first, n int) *jobdb.Changes {
	c := &jobdb.Changes{}
	base := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	group := jobdb.Group{
		Partition: hostilePartition, Queue: "q" + hostile, JobSet: long, Name: "g" + hostile, Binding: 1, Policy: hostile, Rule: hostile, State: policy.GroupActive,
		Shape: policy.Shape{Parts: []policy.ShapePart{{Name: hostile, Replicas: 1, Members: 100, MinMembers: 100, AfterReady: []uint32{0}, SuccessRules: []policy.SuccessRule{{Indexes: policy.ParseIndexes("0,3-7"), Count: 2}}}}, Success: policy.Success{Any: true}},
	}
	group.ID = jobdb.GroupID(group.Queue, group.JobSet, group.Name)
	if first == 0 {
		c.Groups = append(c.Groups, &group)
		c.Units = append(c.Units, &jobdb.Unit{Partition: hostilePartition, ID: jobdb.UnitID(group.ID, hostile, 0), GroupID: group.ID, Binding: 1, Part: hostile})
	}
	for i := first; i < first+n; i++ {
		when := base.Add(time.Duration(i) * time.Minute)
		sum := sha256.Sum256([]byte(fmt.Sprint(i)))
		id := fmt.Sprintf("hostile-%04d-%s%s", i, hex.EncodeToString(sum[:4]), hostile)
		if i == 0 {
			id += long
		}
		state := jobdb.JobFailed
		if i%3 == 0 {
			state = jobdb.JobQueued
		}
		j := &jobdb.Job{
			Partition: hostilePartition, JobID: id, Queue: group.Queue, JobSet: group.JobSet, Known: true, State: state, Final: state == jobdb.JobFailed,
			Times: jobdb.JobTimes{Submitted: when.Add(-time.Hour).UnixNano(), Ended: when.UnixNano()}, Queueing: jobdb.Queueing{Runs: 1, RetryAfter: when.UnixNano(), AvoidNodes: []string{hostile}},
			Armada: jobdb.Verdict{Failed: true, Reason: hostile, Message: long},
			Member: jobdb.Membership{GroupID: group.ID, Binding: 1, Group: group.Name, Part: hostile, Index: uint32(i), State: jobdb.MemberState(i % 8)},
		}
		r := &jobdb.Run{
			Partition: hostilePartition, JobID: id, RunID: "run" + hostile, State: jobdb.RunFailed, Executor: hostile, Node: hostile,
			Times: jobdb.RunTimes{Leased: when.Add(-time.Hour).UnixNano(), Ended: when.UnixNano()}, Outcome: jobdb.Denied, Decision: uint64(i + 1),
			Error: jobdb.RunError{Reason: hostile, Message: long + "\n" + hostile, Category: hostile},
		}
		d := &jobdb.Decision{
			Where: jobdb.Where{Partition: hostilePartition, Seq: seq, Record: uint32(i)}, Acted: true,
			Decision: chain.Decision{Number: uint64(i + 1), Queue: j.Queue, JobSet: j.JobSet, JobID: id, RunID: r.RunID, Time: when.UnixNano(), Code: policy.RuleFail, Policy: hostile, Rule: hostile, Requeue: i%3 == 0},
		}
		if d.Requeue {
			r.Outcome, d.RetryAfter, d.Code = jobdb.Requeued, when.UnixNano(), policy.RuleRetry
		}
		c.Jobs, c.Runs, c.Decisions = append(c.Jobs, j), append(c.Runs, r), append(c.Decisions, d)
	}
	return c
}

// small is a page on a policies log alone, for what needs no history.
type small struct {
	*httptest.Server
	service *api.Service
	site    *web.Site
	pass    atomic.Int64 // that the clock is ahead
}

func newSmall(t testing.TB, change ...func(*web.Config)) *small {
	t.Helper()
	log, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: filepath.Join(t.TempDir(), "policies"), Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	store, err := policylog.OpenStore(log, func(ctx context.Context, payload []byte) error {
		return log.AppendSync(ctx, 0, []eventlog.Message{{Payload: payload}})
	}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	s := &small{service: &api.Service{Store: store, Now: time.Now}}
	c := web.Config{API: s.service, Now: func() time.Time { return time.Now().Add(time.Duration(s.pass.Load())) }, Log: slog.New(slog.DiscardHandler)}
	c.Query.Policies = func(_ context.Context, use func(*policylog.Store) error) error { return use(store) }
	for _, f := range change {
		f(&c)
	}
	if s.site, err = web.Open(c); err != nil {
		t.Fatal(err)
	}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, api.SignInPath) {
			s.service.SignIn(w, r)
			return
		}
		s.site.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// noRedirects asks as a browser does, but shows redirects.
var noRedirects = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// ask sends a request, and returns the answer with its body.
func ask(t *testing.T, method, url, form string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}
	if form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := noRedirects.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

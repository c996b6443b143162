package policysync_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/armada/policysync"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/test/policysynctest"
)

// world is a policies log, and an Armada.
type world struct {
	*testing.T
	log    *filelog.Log
	store  *policylog.Store
	armada *policysynctest.Server
	logged *lines
	now    time.Time
}

// lines collects log output.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	log, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: filepath.Join(t.TempDir(), "policies"), Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	w := &world{T: t, log: log, armada: policysynctest.Serve(t, "", nil), logged: &lines{}, now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	w.store = w.open()
	return w
}

func (w *world) open() *policylog.Store {
	w.Helper()
	store, err := policylog.OpenStore(w.log, func(ctx context.Context, payload []byte) error {
		return w.log.AppendSync(ctx, 0, []eventlog.Message{{Payload: payload}})
	}, func() time.Time { return w.now })
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = store.Close() })
	return store
}

func (w *world) follower(change ...func(*policysync.Config)) *policysync.Follower {
	w.Helper()
	c := policysync.Config{
		Address: w.armada.Address, Store: w.store, Every: 50 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(w.logged, nil)), Now: func() time.Time { return w.now },
	}
	for _, change := range change {
		change(&c)
	}
	f, err := policysync.New(c)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = f.Close() })
	return f
}

func (w *world) poll(f *policysync.Follower) {
	w.Helper()
	if err := f.Poll(w.Context()); err != nil {
		w.Fatal(err)
	}
}

// holds checks the newest generation: its number and its whole content.
func (w *world) holds(generation uint64, want string) {
	w.Helper()
	now, err := w.store.Newest(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	var got []string
	for _, id := range now.Base.Resources() {
		line := id.String()
		if flat, _ := now.Base.Flat(id.Name); id.Kind == policyfile.KindPolicy {
			line += fmt.Sprintf(":%d", flat.RetryLimit)
		}
		if id.Kind == policyfile.KindQueue {
			body, _ := now.Base.Body(id)
			line += strings.NewReplacer(`"name":"`+id.Name+`",`, "", `,"name":"`+id.Name+`"`, "", `"`, "").Replace(body)
		}
		got = append(got, line)
	}
	if text := strings.Join(got, " "); text != want || now.Generation() != generation {
		w.Errorf("generation %d holds\n     %s\nwant %d, and\n     %s", now.Generation(), text, generation, want)
	}
}

// edit changes our own resources, as the API does.
func (w *world) edit(text string) {
	w.Helper()
	_, err := w.store.Do(w.Context(), policylog.Edit{Author: "ann", Make: func(now policylog.Snapshot) (*policyfile.Set, []policylog.Override, error) {
		set, _, err := now.Base.With(policyfile.File{Name: "edit", Data: []byte(text)})
		return set, now.ActiveOverrides(), err
	}})
	if err != nil {
		w.Fatal(err)
	}
}

// Each change of the server becomes one generation, and no change becomes none; our own
// resources stay.
func TestFollow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.edit("kind: RetrySettings\nspec: {globalMaxRetries: 7}\n---\nkind: Queue\nname: ml\nmode: Shadow\n---\napiVersion: armadaproject.io/v1\nkind: RetryPolicy\nmetadata: {name: old}\nspec: {retryLimit: 9}\n")
	w.armada.Set("infra", policysynctest.Policy("infra", 3, "node"))
	w.armada.Set("app", policysynctest.Policy("app", 1, "user"))
	w.armada.Bind("ml", []string{"infra", "app", "infra"})
	w.armada.Bind("web", []string{"app"})
	w.armada.Bind("plain", []string{})
	f := w.follower()
	for range 3 {
		w.poll(f)
		w.holds(2, "RetrySettings RetryPolicy app:1 RetryPolicy infra:3 Queue ml{mode:Shadow,retryPolicies:[infra,app]} Queue web{retryPolicies:[app]}")
	}
	h, err := w.store.History(t.Context())
	if err != nil || h[0].Author != "armada "+w.armada.Address {
		t.Errorf("by %s, %v", h[0].Author, err)
	}

	w.armada.Set("infra", policysynctest.Policy("infra", 4, "node"))
	w.poll(f)
	w.holds(3, "RetrySettings RetryPolicy app:1 RetryPolicy infra:4 Queue ml{mode:Shadow,retryPolicies:[infra,app]} Queue web{retryPolicies:[app]}")

	// Our resources change meanwhile; an override is on.
	w.edit("kind: Queue\nname: web\nmode: Shadow\nretryPolicies: [app]\n")
	_, err = w.store.Do(t.Context(), policylog.Edit{Make: func(now policylog.Snapshot) (*policyfile.Set, []policylog.Override, error) {
		return now.Base, []policylog.Override{{Override: policyfile.Override{Queue: "ml", Kill: true}, Reason: "test"}}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.poll(f)
	w.holds(5, "RetrySettings RetryPolicy app:1 RetryPolicy infra:4 Queue ml{mode:Shadow,retryPolicies:[infra,app]} Queue web{mode:Shadow,retryPolicies:[app]}")

	// A policy is deleted together with the references to it; a queue is deleted, and
	// its mode stays ours.
	w.armada.Set("app", nil)
	w.armada.Bind("ml", nil)
	w.armada.Bind("new", []string{"infra"})
	w.poll(f)
	w.holds(6, "RetrySettings RetryPolicy infra:4 Queue ml{mode:Shadow} Queue new{retryPolicies:[infra]} Queue web{mode:Shadow}")
	w.armada.Bind("new", nil)
	w.poll(f)
	w.holds(7, "RetrySettings RetryPolicy infra:4 Queue ml{mode:Shadow} Queue web{mode:Shadow}")
	now, err := w.store.Newest(t.Context())
	if err != nil || len(now.ActiveOverrides()) != 1 || !strings.Contains(string(now.Set.Canonical()), `"killed":true`) {
		t.Errorf("overrides %v, %v", now.ActiveOverrides(), err)
	}
	// A change of ours that undoes a followed policy is reverted.
	w.edit("apiVersion: armadaproject.io/v1\nkind: RetryPolicy\nmetadata: {name: mine}\nspec: {retryLimit: 9}\n")
	w.poll(f)
	w.holds(9, "RetrySettings RetryPolicy infra:4 Queue ml{mode:Shadow} Queue web{mode:Shadow}")
}

// An empty server is followed too, and that is logged.
func TestNothingAnyMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.follower()
	w.poll(f) // it never had policies: no generation
	w.holds(0, "")
	w.armada.Set("infra", policysynctest.Policy("infra", 3, "node"))
	w.poll(f)
	w.armada.Set("infra", nil)
	w.poll(f)
	w.poll(f)
	w.holds(2, "")
	if n := w.logged.count("all retry policies were deleted in armada"); n != 1 {
		t.Errorf("said %d times", n)
	}
}

// An outage changes nothing, is logged once, and reports since when; an incomplete
// response counts as an outage.
func TestOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.armada.Set("infra", policysynctest.Policy("infra", 3, "node"))
	w.armada.Bind("ml", []string{"infra"})
	var notified []*pb.Source
	f := w.follower(func(c *policysync.Config) { c.Polled = func(s *pb.Source) { notified = append(notified, s) } })
	w.poll(f)
	good := w.now
	const all = "RetryPolicy infra:3 Queue ml{retryPolicies:[infra]}"
	for i, outage := range []struct {
		begin, end func()
		want       string
	}{
		{func() { w.armada.Fail(status.Error(codes.Unavailable, "database")) }, func() { w.armada.Fail(nil) }, "read queues: Unavailable: database"},
		{func() { w.armada.Cut(true) }, func() { w.armada.Cut(false) }, "closed the list of queues before its end marker"},
		{func() { w.armada.Want("Basic x") }, func() { w.armada.Want("") }, "Unauthenticated"},
		{
			func() { w.armada.Stop() },
			func() {
				a := policysynctest.Serve(t, w.armada.Address, nil)
				a.Set("infra", policysynctest.Policy("infra", 3, "node"))
				a.Bind("ml", []string{"infra"})
				w.armada = a
			}, "Unavailable",
		},
	} {
		outage.begin()
		w.now = w.now.Add(time.Minute)
		began := w.now
		for range 3 {
			if err := f.Poll(t.Context()); err == nil || !strings.Contains(err.Error(), outage.want) {
				t.Errorf("%d: %v, want %s", i, err, outage.want)
			}
			w.now = w.now.Add(time.Second)
		}
		s := f.Source()
		if !s.LastGood.AsTime().Equal(good) || !s.FailingSince.AsTime().Equal(began) || !strings.Contains(s.Error, outage.want) {
			t.Errorf("%d: source %v, want good at %v, failing since %v", i, s, good, began)
		}
		w.holds(1, all)
		outage.end()
		eventually(t, func() bool { return f.Poll(t.Context()) == nil })
		good = w.now
		if s := f.Source(); s.Error != "" || s.FailingSince != nil || !s.LastGood.AsTime().Equal(good) {
			t.Errorf("%d: after it %v", i, s)
		}
		w.holds(1, all)
		if cannot, again := w.logged.count("polling armada failed"), w.logged.count("polling armada works again"); cannot != i+1 || again != i+1 {
			t.Errorf("%d: logged %d and %d times", i, cannot, again)
		}
	}
	if len(notified) < 17 || notified[0].Error != "" || notified[1].Error == "" {
		t.Errorf("told %v", notified)
	}
}

// eventually polls until a condition holds; the test's timeout ends it.
func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("never")
		}
	}
}

// A policy that cannot be used is reported and does not affect others; one that could
// be used before stays.
func TestNotUnderstood(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.armada.Set("a", policysynctest.Policy("a", 3, "node"))
	w.armada.Set("b", policysynctest.Policy("b", 3, "node"))
	w.armada.Bind("ml", []string{"a", "b"})
	f := w.follower()
	w.poll(f)
	w.armada.Set("a", policysynctest.Policy("a", 4, "node", policysynctest.Mutate()))
	w.armada.Set("b", policysynctest.Policy("b", 4, "node"))
	w.armada.Set("c", policysynctest.Policy("c", 1<<31, "node"))
	w.armada.Set("D!", policysynctest.Policy("D!", 1, "node"))
	w.armada.Bind("ml", []string{"a", "b", "c", "D!"})
	w.armada.Bind("a queue", []string{"a"})
	for range 2 {
		w.poll(f)
		w.holds(2, "RetryPolicy a:3 RetryPolicy b:4 Queue ml{retryPolicies:[a,b,c]}")
	}
	not := f.Source().NotUnderstood
	for i, want := range []string{`"D!" is ignored: name`, `"a" stays as it is: invalid retry policy: rules[1].mutate`, `"c" is ignored: retryLimit`, "Queue a queue"} {
		if !slices.ContainsFunc(not, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("%d: %q is not among %q", i, want, not)
		}
	}
	if n := w.logged.count("some policies or bindings of armada cannot be used here and are ignored"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	// After a restart the last usable version stays too.
	f = w.follower()
	w.poll(f)
	w.holds(2, "RetryPolicy a:3 RetryPolicy b:4 Queue ml{retryPolicies:[a,b,c]}")
	w.armada.Set("a", policysynctest.Policy("a", 5, "node"))
	w.armada.Set("c", nil)
	w.armada.Set("D!", nil)
	w.armada.Bind("a queue", nil)
	w.poll(f)
	w.holds(3, "RetryPolicy a:5 RetryPolicy b:4 Queue ml{retryPolicies:[a,b]}")
	if not := f.Source().NotUnderstood; len(not) != 0 {
		t.Errorf("still %q", not)
	}
}

// A slow follower does not revert to a state that another follower has moved past.
func TestNobodyGoesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.armada.Set("infra", policysynctest.Policy("infra", 1, "node"))
	slow, fast := w.follower(), w.follower(func(c *policysync.Config) { c.Store = w.open() })
	w.poll(fast)
	w.armada.Set("infra", policysynctest.Policy("infra", 2, "node"))
	asked, release := w.armada.Hold()
	polled := make(chan error, 1)
	go func() { polled <- slow.Poll(t.Context()) }()
	<-asked // the response for slow has version 2
	w.armada.Set("infra", policysynctest.Policy("infra", 3, "node"))
	w.poll(fast)
	close(release)
	if err := <-polled; err != nil {
		t.Fatal(err)
	}
	w.holds(2, "RetryPolicy infra:3")
}

// Several concurrent followers write one generation for each change.
func TestFollowersAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 3 {
		f := w.follower(func(c *policysync.Config) { c.Store, c.Every = w.open(), time.Millisecond })
		wg.Go(func() { _ = f.Run(ctx) })
	}
	const changes = 30
	for i := range changes {
		w.armada.Set("infra", policysynctest.Policy("infra", uint64(i+1), "node"))
		eventually(t, func() bool {
			now, err := w.store.Newest(ctx)
			if err != nil {
				t.Fatal(err)
			}
			flat, _ := now.Base.Flat("infra")
			return flat.RetryLimit == uint32(i+1)
		})
	}
	reads := w.armada.Reads() + 20
	eventually(t, func() bool { return w.armada.Reads() > reads })
	cancel()
	wg.Wait()
	h, err := w.store.History(t.Context())
	if err != nil || len(h) != changes {
		t.Fatalf("%d generations count, want %d; %v", len(h), changes, err)
	}
	w.holds(h[0].Number, fmt.Sprintf("RetryPolicy infra:%d", changes)) // numbers have gaps where one follower lost the race
}

// The header is requested before every poll, and TLS follows the configuration.
func TestAuthorizationAndTLS(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	certs := httptest.NewUnstartedServer(nil)
	certs.StartTLS()
	defer certs.Close()
	w.armada = policysynctest.Serve(t, "", &certs.TLS.Certificates[0])
	w.armada.Set("infra", policysynctest.Policy("infra", 3, "node"))
	w.armada.Want("Bearer one")
	roots := x509.NewCertPool()
	roots.AddCert(certs.Certificate())
	token := "one"
	f := w.follower(func(c *policysync.Config) {
		c.TLS = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
		c.Authorization = func() (string, error) {
			if token == "" {
				return "", errors.New("no token")
			}
			return "Bearer " + token, nil
		}
	})
	w.poll(f)
	w.holds(1, "RetryPolicy infra:3")
	w.armada.Want("Bearer two")
	if err := f.Poll(t.Context()); err == nil || strings.Contains(err.Error(), "one") {
		t.Errorf("with the old token: %v", err)
	}
	token = ""
	if err := f.Poll(t.Context()); err == nil || err.Error() != "no token" {
		t.Errorf("without a token: %v", err)
	}
	token = "two"
	w.poll(f)
	for _, c := range []*tls.Config{nil, {MinVersion: tls.VersionTLS12}} { // no TLS, and the system roots
		stranger := w.follower(func(config *policysync.Config) { config.TLS = c })
		if err := stranger.Poll(t.Context()); err == nil {
			t.Error("it should not be trusted")
		}
	}
}

// Ten thousand policies and bindings are processed quickly, and polled again even
// faster.
func TestMany(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	w := newWorld(t)
	for i := range 10_000 {
		name := fmt.Sprintf("policy-%d", i)
		w.armada.Set(name, policysynctest.Policy(name, 3, "node"))
		w.armada.Bind(fmt.Sprintf("queue-%d", i), []string{name})
	}
	f := w.follower()
	for i := range 3 {
		began := time.Now()
		w.poll(f)
		t.Logf("poll %d took %v", i, time.Since(began))
	}
	now, err := w.store.Newest(t.Context())
	if err != nil || now.Generation() != 1 || len(now.Base.Resources()) != 20_000 {
		t.Errorf("generation %d, %v", now.Generation(), err)
	}
}

// A default policy that the server does not have is reported, and a change of that is
// logged once: when the server loses it, has it again, and when the settings name
// another one.
func TestMissingDefault(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.armada.Set("infra", policysynctest.Policy("infra", 3, "node"))
	w.armada.Set("other", policysynctest.Policy("other", 1, "node"))
	f := w.follower()
	const warns, ends = "level=WARN msg=\"the default policy of the settings does not exist in armada", "default policy exists again"
	step := func(what, missing string, warned, ended int) {
		t.Helper()
		for range 2 { // the second poll finds no change
			w.poll(f)
			if got := f.Source().MissingDefault; got != missing {
				t.Errorf("%s: missing %q, want %q", what, got, missing)
			}
		}
		if a, b := w.logged.count(warns), w.logged.count(ends); a != warned || b != ended {
			t.Errorf("%s: logged %d and %d times, want %d and %d", what, a, b, warned, ended)
		}
	}
	settings := func(name string) { w.edit("kind: RetrySettings\nspec: {defaultPolicyName: " + name + "}\n") }
	step("no settings", "", 0, 0)
	settings("infra")
	step("it is there", "", 0, 0)
	w.armada.Set("infra", nil)
	step("lost", "infra", 1, 0)
	f = w.follower()
	step("after a restart", "infra", 2, 0)
	w.armada.Fail(status.Error(codes.Unavailable, "database"))
	if err := f.Poll(t.Context()); err == nil || f.Source().MissingDefault != "infra" {
		t.Errorf("in an outage: %v, missing %q", err, f.Source().MissingDefault)
	}
	w.armada.Fail(nil)
	w.armada.Set("infra", policysynctest.Policy("infra", 4, "node"))
	step("there again", "", 2, 1)
	w.armada.Set("infra", nil)
	step("lost again", "infra", 3, 1)
	settings("other")
	step("another default", "", 3, 2)
}

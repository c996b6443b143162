package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
)

// Deployment is the deployment to check.
type Deployment struct {
	Admin   *Admin
	Cluster *pulsarlog.Cluster
	Service string // the service URL, for messages
	// Topics, short or full names.
	Events, Decisions, Policies string
	// Bookie is the HTTP address of a bookie; empty: no bookie is queried.
	Bookie string
	// Progress, if set, is called with the subject that is queried next.
	Progress func(what string)
}

// Gather queries everything that Check needs. It returns ErrUnreachable if the admin
// API does not respond at all; other errors are part of the facts.
func Gather(ctx context.Context, d Deployment) (*Facts, error) {
	if d.Progress == nil {
		d.Progress = func(string) {}
	}
	f := &Facts{}
	d.Progress("the broker")
	f.Version = d.Admin.text(ctx, "brokers/version")
	if err := f.Version.Err; errors.Is(err, ErrUnreachable) {
		return nil, err
	} else if statusOf(err) == http.StatusUnauthorized { // every authenticated user may query it
		return nil, fmt.Errorf("%w: authentication failed: %w (pass credentials, for example --pulsar-token-file)", ErrUnreachable, err)
	}
	f.Broker = answer[map[string]string](ctx, d.Admin, "brokers/configuration/runtime")
	f.Standalone = standalone(f.Broker.Value)
	f.Bookie = d.bookie(ctx)
	for _, t := range []struct {
		to   *Topic
		name string
	}{{&f.Events, d.Events}, {&f.Decisions, d.Decisions}, {&f.Policies, d.Policies}} {
		d.Progress("topic " + t.name)
		*t.to = d.Admin.topic(ctx, d.Cluster.TopicName(t.name))
	}
	f.Service = d.service(f)
	if f.Decisions.Ledgers.Known() && f.Service.Known() {
		f.Decisions.Claims = d.claims(ctx, &f.Decisions)
	}
	if f.Service.Known() && f.Events.Partitions.Value > 0 {
		f.Events.Beginnings = d.beginnings(&f.Events)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return f, nil
}

// topicPath is the path of a topic in the admin API.
func topicPath(topic string) string { return strings.Replace(topic, "://", "/", 1) }

// topic queries everything about a topic.
func (a *Admin) topic(ctx context.Context, name string) Topic {
	t := Topic{Name: name, Partitions: a.partitions(ctx, name)}
	if !t.Partitions.Known() {
		return t
	}
	at := topicPath(name)
	const applied = "?applied=true"
	t.Retention = answer[Retention](ctx, a, at+"/retention"+applied)
	t.TTL = answer[int](ctx, a, at+"/messageTTL"+applied)
	t.Quotas = answer[map[string]Quota](ctx, a, at+"/backlogQuotaMap"+applied)
	t.Compaction = answer[int64](ctx, a, at+"/compactionThreshold"+applied)
	t.Offload = answer[Offload](ctx, a, at+"/offloadPolicies"+applied)
	t.Inactive = answer[Inactive](ctx, a, at+"/inactiveTopicPolicies"+applied)
	t.MarkDelete = answer[Persistence](ctx, a, at+"/persistence"+applied)
	t.MaxMessage = answer[int64](ctx, a, at+"/maxMessageSize"+applied)
	if t.Partitions.Value == 0 {
		t.Stats.Err, t.Ledgers.Err = ErrNotChecked, ErrNotChecked
		return t
	}
	t.Stats = a.stats(ctx, name, t.Partitions.Value)
	t.Ledgers = perPartition(ctx, a, name, t.Partitions.Value, "/partitioned-internalStats", Ledgers{Compacted: ledgerID{-1}})
	return t
}

// partitions returns 0 for a topic without partitions.
func (a *Admin) partitions(ctx context.Context, name string) Fact[int] {
	meta := answer[struct{ Partitions int }](ctx, a, topicPath(name)+"/partitions?checkAllowAutoCreation=false")
	return Fact[int]{Value: meta.Value.Partitions, Err: meta.Err}
}

func (a *Admin) stats(ctx context.Context, name string, n int) Fact[[]Stats] {
	return perPartition(ctx, a, name, n, "/partitioned-stats?perPartition=true&getPreciseBacklog=true", Stats{Missing: true})
}

// perPartition queries something for all partitions at once. A partition that the
// broker does not have gets the value missing.
func perPartition[T any](ctx context.Context, a *Admin, name string, n int, what string, missing T) Fact[[]T] {
	all := answer[struct{ Partitions map[string]T }](ctx, a, topicPath(name)+what)
	if !all.Known() {
		return Fact[[]T]{Err: all.Err}
	}
	out := make([]T, n)
	for p := range out {
		one, ok := all.Value.Partitions[partition(name, p)]
		if !ok {
			one = missing
		}
		out[p] = one
	}
	return Fact[[]T]{Value: out}
}

func partition(topic string, p int) string { return fmt.Sprintf("%s-partition-%d", topic, p) }

// service checks whether the client can connect, with a topic that exists: a broker
// might create one that does not.
func (d *Deployment) service(f *Facts) Fact[string] {
	for _, t := range []*Topic{&f.Events, &f.Decisions, &f.Policies} {
		if t.Partitions.Known() {
			topic, err := d.Cluster.Open(t.Name)
			if err == nil {
				err = topic.Close()
			}
			return Fact[string]{Value: d.Service, Err: err}
		}
	}
	return Fact[string]{Err: fmt.Errorf("%w: none of the topics exists", ErrNotChecked)}
}

// beginnings finds where each partition of a topic begins.
func (d *Deployment) beginnings(t *Topic) []Fact[eventlog.Position] {
	out := make([]Fact[eventlog.Position], t.Partitions.Value)
	topic, err := d.Cluster.Open(t.Name)
	if err == nil {
		defer func() { _ = topic.Close() }()
	}
	for p := range out {
		d.Progress(fmt.Sprintf("beginning of partition %d of events", p))
		if out[p].Err = err; err == nil {
			out[p].Value, out[p].Err = topic.Beginning(p)
		}
	}
	return out
}

// bookie queries the configuration of a bookie.
func (d *Deployment) bookie(ctx context.Context) Fact[map[string]string] {
	if d.Bookie == "" {
		return Fact[map[string]string]{Err: fmt.Errorf("%w: brokers do not expose the configuration of bookies", ErrNotChecked)}
	}
	// Send no credentials: this is another server.
	a := &Admin{base: strings.TrimRight(d.Bookie, "/") + "/", http: &http.Client{Timeout: requestTimeout}}
	return answer[map[string]string](ctx, a, "api/v1/config/server_config")
}

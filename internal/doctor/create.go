package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/refloat/refloat/internal/plural"
)

// ErrRefused reports that the existing topics do not allow what was requested; the
// error says what to do.
var ErrRefused = errors.New("refused")

// Spec describes what the topics of a deployment should look like.
type Spec struct {
	Partitions   int  // of events; 0: unchanged
	CreateEvents bool // create events if it does not exist
	Grow         bool // grow decisions to the partition count of events
	NoIngester   bool // only evaluators run: create no subscriptions for ingesters
	// Retentions to set. RetainDecisions is for ever if it is zero; RetainEvents, if it is zero, is
	// unchanged, and for ever in an events that is created. Policies are always retained for ever,
	// because a generation's number is its position counted from the first.
	RetainDecisions, RetainEvents Retention
}

// Forever is the retention of a topic from which nothing is deleted.
var Forever = Retention{Minutes: -1, MB: -1}

// Step is one thing to do, or one that needs nothing done.
type Step struct {
	Done bool   // nothing needs to be done
	What string // in the form "create …"
	do   func(ctx context.Context) error
}

// Do does the step. It is idempotent.
func (s *Step) Do(ctx context.Context) error {
	if s.Done {
		return nil
	}
	err := s.do(ctx)
	if errors.Is(err, ErrDenied) {
		err = fmt.Errorf("%w (run this as an admin of the tenant)", err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.What, err)
	}
	s.Done = true
	return nil
}

// Plan returns the steps that fulfil a Spec. It changes nothing.
func Plan(ctx context.Context, d Deployment, w Spec) ([]Step, error) {
	p := &plan{admin: d.Admin}
	events, decisions, policies := d.Cluster.TopicName(d.Events), d.Cluster.TopicName(d.Decisions), d.Cluster.TopicName(d.Policies)
	n, err := p.events(ctx, events, w)
	if err != nil {
		return nil, err
	}
	if err := p.decisions(ctx, decisions, n, w); err != nil {
		return nil, err
	}
	if err := p.policies(ctx, policies); err != nil {
		return nil, err
	}
	p.subscribe(ctx, events, n, EvaluatorSubscription)
	if !w.NoIngester {
		p.subscribe(ctx, decisions, n, IngesterSubscription)
		p.subscribe(ctx, events, n, IngesterSubscription)
	}
	return p.steps, nil
}

type plan struct {
	admin *Admin
	steps []Step
}

func (p *plan) done(format string, args ...any) {
	p.steps = append(p.steps, Step{Done: true, What: fmt.Sprintf(format, args...)})
}

func (p *plan) todo(do func(context.Context) error, format string, args ...any) {
	p.steps = append(p.steps, Step{What: fmt.Sprintf(format, args...), do: do})
}

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
}

// count returns the number of partitions of a topic; 0: it does not exist.
func (p *plan) count(ctx context.Context, name string) (int, error) {
	n := p.admin.partitions(ctx, name)
	switch {
	case errors.Is(n.Err, ErrNotFound):
		return 0, nil
	case n.Err != nil:
		return 0, fmt.Errorf("query %s: %w", name, n.Err)
	case n.Value == 0:
		return 0, refuse("%s is not partitioned: delete it if it is empty, or use another topic", name)
	}
	return n.Value, nil
}

// events returns the number of partitions that events has or will have.
func (p *plan) events(ctx context.Context, name string, w Spec) (int, error) {
	n, err := p.count(ctx, name)
	if err != nil {
		return 0, err
	}
	switch {
	case n == 0 && !w.CreateEvents:
		return 0, refuse("%s does not exist: let Armada create it, or add --create-events --partitions N", name)
	case n == 0 && w.Partitions == 0:
		return 0, refuse("%s does not exist: --create-events needs --partitions N", name)
	case n != 0 && w.Partitions != 0 && n != w.Partitions:
		return 0, refuse("%s has %s, not %d: omit --partitions, decisions gets as many as events", name, plural.Of(n, "partition"), w.Partitions)
	case n != 0:
		p.done("%s has %s", name, plural.Of(n, "partition"))
		if w.RetainEvents != (Retention{}) {
			p.retain(ctx, name, w.RetainEvents)
		}
		return n, nil // its other policies are up to its owner
	}
	p.create(name, w.Partitions)
	p.keep(ctx, name, w.RetainEvents)
	return w.Partitions, nil
}

func (p *plan) decisions(ctx context.Context, name string, want int, w Spec) error {
	n, err := p.count(ctx, name)
	if err != nil {
		return err
	}
	switch {
	case n == 0:
		p.create(name, want)
	case n == want:
		p.done("%s has %s", name, plural.Of(n, "partition"))
	case n > want:
		return refuse("%s has %s, but events has %d: the topics do not belong together; use others", name, plural.Of(n, "partition"), want)
	case !w.Grow:
		return refuse("%s has %s, but events has %d: job sets may have moved to partitions that do not know their jobs; "+
			"let older job sets end first, or accept that jobs that moved are not retried any more (their failures are UnknownJob); then run this with --grow, "+
			"and start the evaluators once with %s", name, plural.Of(n, "partition"), want, acceptPartitions(want))
	default:
		p.todo(p.request(http.MethodPost, topicPath(name)+"/partitions", want), "grow %s from %d to %d partitions; then start the evaluators once with %s", name, n, want, acceptPartitions(want))
	}
	p.keep(ctx, name, w.RetainDecisions)
	return nil
}

func (p *plan) policies(ctx context.Context, name string) error {
	n, err := p.count(ctx, name)
	switch {
	case err != nil:
		return err
	case n > 1:
		return refuse("%s has %s, but policies need a topic with one: pass another as --pulsar-policies", name, plural.Of(n, "partition"))
	case n == 1:
		p.done("%s has 1 partition", name)
	default:
		p.create(name, 1)
	}
	p.keep(ctx, name, Forever)
	return nil
}

func (p *plan) create(name string, n int) {
	p.todo(p.request(http.MethodPut, topicPath(name)+"/partitions", n), "create %s with %s", name, plural.Of(n, "partition"))
}

// request returns a step that sends a request. A conflict means that it is done
// already.
func (p *plan) request(method, path string, body any) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := p.admin.do(ctx, method, path, body)
		if statusOf(err) == http.StatusConflict {
			return nil
		}
		return err
	}
}

// keep sets the retention of a topic, and disables every other deletion in it, by topic
// policies: those of the namespace may change.
func (p *plan) keep(ctx context.Context, name string, r Retention) {
	at := topicPath(name)
	p.retain(ctx, name, r)
	ttl := setting[*int]{p, name, "/messageTTL", func(v *int) bool { return v != nil && *v == 0 }}
	ttl.set(ctx, "disable message expiry of %s", http.MethodPost, at+"/messageTTL?messageTTL=0", nil)
	inactive := setting[Inactive]{p, name, "/inactiveTopicPolicies", func(i Inactive) bool { return !i.Delete && i.Mode != "" }}
	inactive.set(ctx, "disable deletion of %s while inactive", http.MethodPost, at+"/inactiveTopicPolicies", Inactive{Mode: "delete_when_no_subscriptions", Seconds: 24 * 60 * 60})
}

// retain sets the retention of a topic; zero: for ever.
func (p *plan) retain(ctx context.Context, name string, r Retention) {
	if r == (Retention{}) {
		r = Forever
	}
	s := setting[Retention]{p, name, "/retention", func(has Retention) bool { return has == r || r.Infinite() && has.Infinite() }}
	s.set(ctx, "retain %s "+retentionText(r), http.MethodPost, topicPath(name)+"/retention", r)
}

// setting is a policy of a topic.
type setting[T any] struct {
	*plan
	topic, path string
	good        func(T) bool
}

func (s setting[T]) set(ctx context.Context, what, method, request string, body any) {
	own := answer[T](ctx, s.admin, topicPath(s.topic)+s.path)
	if own.Known() && s.good(own.Value) {
		s.done(what, s.topic)
		return
	}
	do := s.request(method, request, body)
	s.todo(func(ctx context.Context) error {
		err := do(ctx)
		if err == nil {
			return s.await(ctx)
		}
		applied := answer[T](ctx, s.admin, topicPath(s.topic)+s.path+"?applied=true")
		if statusOf(err) == http.StatusMethodNotAllowed && applied.Known() && s.good(applied.Value) {
			return nil // topic policies are disabled here, and the namespace's policy suffices
		}
		if statusOf(err) == http.StatusMethodNotAllowed {
			return fmt.Errorf("%w; set it for the namespace with pulsar-admin namespaces, or set topicLevelPoliciesEnabled=true in broker.conf", err)
		}
		return err
	}, what, s.topic)
}

const policyTimeout = 20 * time.Second

// await waits until the brokers apply a policy.
func (s setting[T]) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, policyTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if own := answer[T](ctx, s.admin, topicPath(s.topic)+s.path+"?applied=true"); own.Known() && s.good(own.Value) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the broker accepted the policy, but did not apply it within %v: run this again", policyTimeout)
		}
	}
}

// earliest is the start position of a new subscription.
var earliest = map[string]int64{"ledgerId": -1, "entryId": -1, "partitionIndex": -1}

func (p *plan) subscribe(ctx context.Context, topic string, n int, name string) {
	has := map[int]bool{}
	for i, s := range p.admin.stats(ctx, topic, n).Value {
		_, has[i] = s.Subscriptions[name]
	}
	var missing []int
	for i := range n {
		if !has[i] {
			missing = append(missing, i)
		}
	}
	if len(missing) == 0 {
		p.done("%s has the subscription %s", topic, name)
		return
	}
	p.todo(func(ctx context.Context) error {
		for _, i := range missing {
			if err := p.request(http.MethodPut, topicPath(partition(topic, i))+"/subscription/"+name, earliest)(ctx); err != nil {
				return fmt.Errorf("partition %d: %w", i, err)
			}
		}
		return nil
	}, "create the subscription %s on %s, at the beginning, for %s", name, topic, partitionsOf(missing))
}

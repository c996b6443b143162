package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// ErrRefused says that the topics are not such that what was asked for can be
// done; the error says what to do.
var ErrRefused = errors.New("refused")

// Wish is what the topics of a deployment are to be.
type Wish struct {
	Partitions   int  // of events; 0: as it has
	CreateEvents bool // when it is not there
	Grow         bool // decisions, to the count of events
	NoIngester   bool // only evaluators run: no subscription keeps anything for ingesters
}

// Step is one thing to do, or one that is as wished.
type Step struct {
	Done bool   // nothing is to be done
	What string // in the form "create …"
	do   func(ctx context.Context) error
}

// Do does it. Doing it twice does no harm.
func (s *Step) Do(ctx context.Context) error {
	if s.Done {
		return nil
	}
	err := s.do(ctx)
	if errors.Is(err, ErrDenied) {
		err = fmt.Errorf("%w (let an admin of the tenant run this)", err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.What, err)
	}
	s.Done = true
	return nil
}

// Plan says what is to be done for a wish. It changes nothing.
func Plan(ctx context.Context, d Deployment, w Wish) ([]Step, error) {
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

// count is how many partitions a topic has; 0: it is not there.
func (p *plan) count(ctx context.Context, name string) (int, error) {
	n := p.admin.partitions(ctx, name)
	switch {
	case errors.Is(n.Err, ErrNotThere):
		return 0, nil
	case n.Err != nil:
		return 0, fmt.Errorf("ask for %s: %w", name, n.Err)
	case n.Value == 0:
		return 0, refuse("%s exists and is not partitioned; delete it if it is empty, or name another", name)
	}
	return n.Value, nil
}

// events returns how many partitions events has or will have.
func (p *plan) events(ctx context.Context, name string, w Wish) (int, error) {
	n, err := p.count(ctx, name)
	if err != nil {
		return 0, err
	}
	switch {
	case n == 0 && !w.CreateEvents:
		return 0, refuse("%s does not exist: create it the way Armada does, or here by --create-events --partitions N", name)
	case n == 0 && w.Partitions == 0:
		return 0, refuse("%s does not exist: --create-events takes --partitions N", name)
	case n != 0 && w.Partitions != 0 && n != w.Partitions:
		return 0, refuse("%s has %s, not %d; leave --partitions out, decisions gets as many as events", name, plural(n, "partition", "partitions"), w.Partitions)
	case n != 0:
		p.done("%s has %s", name, plural(n, "partition", "partitions"))
		return n, nil // its policies are its owner's
	}
	p.create(name, w.Partitions)
	p.keep(ctx, name)
	return w.Partitions, nil
}

func (p *plan) decisions(ctx context.Context, name string, want int, w Wish) error {
	n, err := p.count(ctx, name)
	if err != nil {
		return err
	}
	switch {
	case n == 0:
		p.create(name, want)
	case n == want:
		p.done("%s has %s", name, plural(n, "partition", "partitions"))
	case n > want:
		return refuse("%s has %d partitions, events has %d: they do not belong together; name others", name, n, want)
	case !w.Grow:
		return refuse("%s has %s, events has %d. A job set may go to another partition now, where nothing is known of its jobs: "+
			"let the job sets of before end first, or accept that their retry counts start anew. Then run this with --grow, "+
			"and start the evaluators once with %s", name, plural(n, "partition", "partitions"), want, acceptPartitions(want))
	default:
		p.todo(p.request(http.MethodPost, topicPath(name)+"/partitions", want), "grow %s from %d to %d partitions; then start the evaluators once with %s", name, n, want, acceptPartitions(want))
	}
	p.keep(ctx, name)
	return nil
}

func (p *plan) policies(ctx context.Context, name string) error {
	n, err := p.count(ctx, name)
	switch {
	case err != nil:
		return err
	case n > 1:
		return refuse("%s has %d partitions: policies take a topic with one; name another by --pulsar-policies", name, n)
	case n == 1:
		p.done("%s has 1 partition", name)
	default:
		p.create(name, 1)
	}
	p.keep(ctx, name)
	return nil
}

func (p *plan) create(name string, n int) {
	p.todo(p.request(http.MethodPut, topicPath(name)+"/partitions", n), "create %s with %s", name, plural(n, "partition", "partitions"))
}

// request makes a request, where "it is so already" is as good as success.
func (p *plan) request(method, path string, body any) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := p.admin.do(ctx, method, path, body)
		if statusOf(err) == http.StatusConflict {
			return nil
		}
		return err
	}
}

// keep sets that nothing in a topic is ever deleted, for the topic itself: what
// its namespace says may change.
func (p *plan) keep(ctx context.Context, name string) {
	at := topicPath(name)
	retention := setting[Retention]{p, name, "/retention", func(r Retention) bool { return r.Infinite() }}
	retention.set(ctx, "keep %s for ever", http.MethodPost, at+"/retention", Retention{Minutes: -1, MB: -1})
	ttl := setting[*int]{p, name, "/messageTTL", func(v *int) bool { return v != nil && *v == 0 }}
	ttl.set(ctx, "let no message of %s expire", http.MethodPost, at+"/messageTTL?messageTTL=0", nil)
	inactive := setting[Inactive]{p, name, "/inactiveTopicPolicies", func(i Inactive) bool { return !i.Delete && i.Mode != "" }}
	inactive.set(ctx, "do not delete %s when nobody uses it", http.MethodPost, at+"/inactiveTopicPolicies", Inactive{Mode: "delete_when_no_subscriptions", Seconds: 24 * 60 * 60})
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
			return nil // topics have no policies of their own here, and that of the namespace will do
		}
		if statusOf(err) == http.StatusMethodNotAllowed {
			return fmt.Errorf("%w; set it for the namespace by pulsar-admin namespaces, or topicLevelPoliciesEnabled=true in broker.conf", err)
		}
		return err
	}, what, s.topic)
}

const policyTimeout = 20 * time.Second

// await waits until the brokers know a policy that was set.
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
			return fmt.Errorf("the broker took it, and does not show it within %v; run this again", policyTimeout)
		}
	}
}

// earliest is a new subscription's place.
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
	}, "create the subscription %s of %s, at its beginning, for %s", name, topic, partitionsOf(missing))
}

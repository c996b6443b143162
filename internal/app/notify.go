package app

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/notify"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/query"
)

// announcer notifies of generations and of the overrides in them, in order, from where begin found the history (ADR 28).
type announcer struct {
	policies *policylog.Store
	decides  func() bool // whether this process is the one that notifies of them
	notify   func(notify.Event)
	log      *slog.Logger
	now      func() time.Time

	seen uint64               // the newest generation that was looked at
	on   []policylog.Override // of it, those that are not over
}

const (
	announceEvery   = time.Second // how often the end of overrides is looked for
	announceTimeout = 30 * time.Second
	maxAnnounced    = 20 // changes of one generation that a notification lists
)

// begin passes over the generations that exist.
func (a *announcer) begin(ctx context.Context) error {
	newest, err := a.policies.Newest(ctx)
	if err == nil {
		a.seen, a.on = newest.Generation(), slices.Clone(newest.ActiveOverrides())
		a.expire(a.now().UnixNano(), func(notify.Event) {})
	}
	return err
}

// run looks at the history until ctx ends. After an error, the next look tries again.
func (a *announcer) run(ctx context.Context) error {
	failing := false
	for range every(ctx, announceEvery) {
		err := a.look(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			a.log.Warn("the history of policies cannot be read to notify of it; this is tried again", slog.Any("error", err))
		}
		failing = err != nil
	}
	return nil
}

// look notifies of new generations, and of overrides whose time is over.
func (a *announcer) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()
	history, err := a.policies.History(ctx)
	if err != nil {
		return err
	}
	mine := a.decides()
	send := func(e notify.Event) {
		if mine {
			a.notify(e)
		}
	}
	var fresh []*policylog.Version
	for _, v := range history { // newest first
		if v.Number <= a.seen {
			break
		}
		fresh = append(fresh, v)
	}
	for _, v := range slices.Backward(fresh) {
		if a.seen = v.Number; v.Err != nil { // node.unusable notifies
			continue
		}
		a.expire(v.Time, send)
		if len(v.Changes) > 0 {
			send(changed(v))
		}
		began, ended := policylog.OverridesChanged(a.on, v.Overrides, v.Time)
		for i := range began {
			send(overrideEvent(&began[i], v, ""))
		}
		for i := range ended {
			send(overrideEvent(&ended[i], v, "no longer: "))
		}
		a.on = slices.DeleteFunc(slices.Clone(v.Overrides), func(o policylog.Override) bool { return o.Over(v.Time) })
	}
	a.expire(a.now().UnixNano(), send)
	return nil
}

// expire notifies of the overrides whose time is over.
func (a *announcer) expire(now int64, send func(notify.Event)) {
	a.on = slices.DeleteFunc(a.on, func(o policylog.Override) bool {
		over := o.Over(now)
		if over {
			send(overrideEvent(&o, nil, "the time is over: "))
		}
		return over
	})
}

// changed is the event of a generation that changes resources.
func changed(v *policylog.Version) notify.Event {
	changes, texts := []map[string]string{}, []string{}
	for _, c := range v.Changes[:min(len(v.Changes), maxAnnounced)] {
		changes = append(changes, map[string]string{"kind": c.Kind, "name": c.Name, "op": string(c.Op)})
		texts = append(texts, fmt.Sprintf("%s %s", c.ID, c.Op))
	}
	if more := len(v.Changes) - len(texts); more > 0 {
		texts = append(texts, plural.Of(more, "more change"))
	}
	text := fmt.Sprintf("policy generation %d: %s; by %s%s. A partition decides by it from its next failure on", v.Number, strings.Join(texts, ", "), v.Author, because(v.Reason))
	return event("policies.changed", v.Time, text, map[string]any{
		"generation": v.Number, "author": v.Author, "reason": v.Reason, "changes": changes, "changesCount": len(v.Changes),
	}, v.Number)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// event makes an event, with an id of its type, its time and what else tells it from others.
func event(kind string, at int64, text string, data map[string]any, of ...any) notify.Event {
	return notify.Event{
		ID: notify.ID(append(of, kind, at)...), Type: kind, Time: time.Unix(0, at), Text: "Refloat: " + query.OneLine(text), Data: data,
	}
}

// overrideEvent is the event of an override that a generation begins or, with ended, ends; nil: its time is over.
func overrideEvent(o *policylog.Override, by *policylog.Version, ended string) notify.Event {
	until := max(o.PausedUntil, o.AvoidedUntil, o.TrustedUntil, o.HeldUntil)
	kind, end := "retries.paused", "retries.resumed"
	switch {
	case o.TrustedUntil != 0:
		kind, end = "node.trusted", "node.no_longer_trusted"
	case o.Node != "" && o.Author == policylog.Guard:
		kind, end = "node.suspected", "node.cleared"
	case o.Node != "":
		kind, end = "node.avoided", "node.cleared"
	case o.Category != "":
		kind, end = "breaker.opened", "breaker.closed"
	case o.Kill:
		kind = "retries.killed"
	}
	data := map[string]any{"override": o.Effect()}
	for name, value := range map[string]string{"queue": o.Queue, "node": o.Node, "category": o.Category, "subcategory": o.Subcategory} {
		if value != "" {
			data[name] = value
		}
	}
	if until != 0 {
		data["until"] = time.Unix(0, until).UTC().Format(time.RFC3339Nano)
	}
	at, text := until, ended+o.Effect()
	if ended != "" {
		kind = end
	}
	if by != nil {
		author, reason := o.Author, o.Reason
		if ended != "" {
			author, reason = by.Author, by.Reason
		}
		data["generation"], data["author"], data["reason"] = by.Number, author, reason
		at, text = by.Time, text+"; by "+author+because(reason)
	}
	return event(kind, at, text, data, o.Queue, o.Node, o.Category, o.Subcategory, o.Author, o.Time, until)
}

// groupsFailed notifies of the groups that failed for good in an envelope.
func (n *node) groupsFailed(partition int, c *evaluator.Commit) {
	for _, r := range c.Records {
		if g, ok := r.(*chain.GroupEnded); ok && g.State == policy.GroupFailed {
			data := map[string]any{"queue": g.Queue, "jobSet": g.JobSet, "group": g.Group, "reason": g.Reason.String(), "partition": partition}
			why := g.Reason.String()
			if g.Rule != "" {
				data["rule"] = g.Rule
				why += ", by rule " + g.Rule
			}
			text := fmt.Sprintf("group %s of queue %s and job set %s has failed: %s", g.Group, g.Queue, g.JobSet, why)
			n.sender.Notify(event("group.failed", c.Published, text, data, c.Envelope.Link.String(), g.Queue, g.JobSet, g.Group))
		}
	}
}

// startNotifying starts what notifies, and passes over what happened before.
func (n *node) startNotifying(p *parts) error {
	sender := notify.NewSender(notify.Config{
		Receiver: n.Notify, Now: n.Now, Log: n.Log, Sent: n.metrics.notified.WithLabelValues("sent").Inc, Lost: n.metrics.notified.WithLabelValues("lost").Inc,
	})
	a := &announcer{policies: n.policies, notify: sender.Notify, log: n.Log, now: n.Now, decides: func() bool {
		return n.backend.Lease == nil || n.inForce.has(0)
	}}
	if err := a.begin(p.ctx); err != nil {
		return fmt.Errorf("read the history of policies, to notify of what comes: %w", err)
	}
	n.sender = sender
	p.run("sender of notifications", sender.Run)
	p.run("announcer of policies", a.run)
	return nil
}

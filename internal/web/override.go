package web

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/query"
)

// override is an override that holds now.
type override struct {
	Effect, Node, Author, Reason, Since string
	Act, End                            string // what ends it, and the address of its form; "": nothing here does
	Held, HeldList                      string // of a breaker: what it holds, where that was counted, and the address of the list of what it held

	of policylog.Override
}

func (s *Site) overridesOf(list []*pb.BrakeState) (all []override) {
	for _, state := range list {
		b := api.OverrideOf(state)
		if b.Over(s.Now().UnixNano()) {
			continue
		}
		o := override{Effect: upper(b.Effect()), Node: b.Node, Author: b.Author, Reason: b.Reason, Since: query.TimeText(b.Time), of: b}
		every := ""
		if b.Queue == "" {
			every = "yes"
		}
		switch {
		case b.Node != "":
		case b.Category != "":
			o.Act, o.End = "Close", link("/overrides", "do", "close", "queue", b.Queue, "all", every, "category", b.Category, "subcategory", b.Subcategory)
		default:
			o.Act, o.End = "Resume", link("/overrides", "do", "resume", "queue", b.Queue, "all", every)
		}
		all = append(all, o)
	}
	return all
}

// overridePage is the form that kills, pauses and resumes retries, and opens and closes breakers.
type overridePage struct {
	Now                    []override
	Do, Queue, Reason, For string
	Category, Subcategory  string
	All                    bool
	May                    bool
	Confirm                bool
	What                   string // is to be confirmed
	Effect                 []string
	Request                string // makes a repeated submission one change
	Problem                string
	Done                   string
}

func (s *Site) overrides(p *page) error {
	shown, err := s.overrideForm(p)
	if err != nil {
		return err
	}
	s.countBreakers(p, shown.Now)
	if p.arg("done") != "" {
		shown.Done = "Generation " + clip(p.arg("done"), 20) + " is in force."
	}
	return p.show("overrides", "Kill and pause retries", "/overrides", shown)
}

// countBreakers says of breakers what they hold.
func (s *Site) countBreakers(p *page, all []override) {
	if s.Query.Jobs == nil {
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, countWithin)
	defer cancel()
	for i := range all {
		o := &all[i]
		if o.of.Category == "" {
			continue
		}
		o.HeldList = link("/decisions", "code", policy.BreakerHeld.String(), "category", o.of.Category, "queue", o.of.Queue)
		switch n, err := query.CountBreaker(ctx, &s.Query, &o.of); {
		case err != nil:
			o.Held = "what it holds is not known now: the job database does not say"
		case n != nil:
			o.Held = n.Text()
		}
	}
}

func (s *Site) overrideForm(p *page) (*overridePage, error) {
	list, err := s.API.List(p.r.Context(), &pb.ListRequest{})
	if err != nil {
		return nil, err
	}
	return &overridePage{
		Now: s.overridesOf(list.Brakes), Do: p.arg("do"), Queue: p.arg("queue"), Reason: p.arg("reason"), For: cmp.Or(p.arg("for"), "1h"), All: p.arg("all") == "yes",
		Category: p.arg("category"), Subcategory: p.arg("subcategory"),
		May: s.API.Allowed(p.who, api.KillRetries, api.PauseRetries), Request: cmp.Or(p.arg("request"), rand.Text()),
	}, nil
}

// override asks for a confirmation, and then makes the change.
func (s *Site) override(p *page) error {
	shown, err := s.overrideForm(p)
	if err != nil {
		return err
	}
	again := func(problem string) error {
		shown.Problem = problem
		p.status = 422
		return p.show("overrides", "Kill and pause retries", "/overrides", shown)
	}
	where := "all queues"
	if !shown.All {
		where = "queue " + shown.Queue
	}
	breaker := shown.Do == "open" || shown.Do == "close"
	cause := (&policyfile.Override{Category: shown.Category, Subcategory: shown.Subcategory}).Cause()
	switch shown.Do {
	case "kill":
		shown.What = "Kill retries of " + where
	case "pause":
		shown.What = fmt.Sprintf("Pause retries of %s for %s", where, shown.For)
	case "resume":
		shown.What = "Resume retries of " + where
	case "open":
		shown.What = fmt.Sprintf("Hold retries of %s after failures of category %s for %s", where, cause, shown.For)
	case "close":
		shown.What = fmt.Sprintf("Close the breaker of category %s of %s", cause, where)
	case "":
		return again("Choose what to do.")
	default:
		return &query.Invalid{Param: "do", Err: errors.New("want kill, pause, resume, open or close")}
	}
	switch length, err := time.ParseDuration(shown.For); {
	case (shown.Do == "pause" || shown.Do == "open") && (err != nil || length <= 0):
		return again(fmt.Sprintf("For %q: want a duration such as 30m or 2h.", clip(shown.For, 40)))
	case !shown.All && shown.Queue == "":
		return again("Name a queue, or choose all queues.")
	case shown.All && shown.Queue != "":
		return again("Name a queue or choose all queues, not both.")
	case breaker && shown.Category == "":
		return again("Name the failure category of the breaker.")
	case !breaker && cause != "":
		return again("Only a breaker has a failure category: open or close one, or leave the category out.")
	case shown.Reason == "":
		return again("Give a reason: it is shown to everyone affected.")
	}
	if err := s.mayOverride(p, shown.Do, shown.Queue); err != nil {
		s.API.Refused(p.r.Context(), p.who, shown.Do, err)
		return err
	}
	confirmed := p.arg("confirm") == "yes"
	done, err := s.change(p.r.Context(), shown, !confirmed)
	switch {
	case err != nil && !confirmed: // of a queue or category that is unknown, the form can be mended
		if code, why, _ := api.Refusal(err); code == http.StatusNotFound {
			return again(sentence(why))
		}
		return err
	case err != nil:
		return err
	case !confirmed:
		shown.Confirm = true
		shown.Effect = s.effect(p, shown, done.Notes)
		return p.show("overrides", shown.What, "/overrides", shown)
	}
	p.to = link("/overrides", "done", fmt.Sprint(done.Generation))
	return nil
}

// change makes the change of a form, or with dry asks what it would be.
func (s *Site) change(ctx context.Context, o *overridePage, dry bool) (*pb.Change, error) {
	if o.Do == "resume" || o.Do == "close" {
		return s.API.Release(ctx, &pb.ReleaseRequest{
			Queue: o.Queue, All: o.All, Category: o.Category, Subcategory: o.Subcategory, Reason: o.Reason, RequestId: o.Request, DryRun: dry,
		})
	}
	length, _ := time.ParseDuration(o.For)
	until := timestamppb.New(s.Now().Add(length))
	r := &pb.BrakeRequest{
		Queue: o.Queue, All: o.All, Category: o.Category, Subcategory: o.Subcategory, Reason: o.Reason, RequestId: o.Request, Kill: o.Do == "kill", DryRun: dry,
	}
	switch o.Do {
	case "pause":
		r.PausedUntil = until
	case "open":
		r.HeldUntil = until
	}
	return s.API.Brake(ctx, r)
}

// mayOverride returns an error if the caller lacks the permission, before a confirmation is asked for.
func (s *Site) mayOverride(p *page, do, queue string) error {
	switch do {
	case "kill":
		return s.API.Auth.MayOn(p.who, api.KillRetries, queue)
	case "pause", "open", "close":
		return s.API.Auth.MayOn(p.who, api.PauseRetries, queue)
	}
	return errors.Join(s.API.Auth.MayOn(p.who, api.KillRetries, queue), s.API.Auth.MayOn(p.who, api.PauseRetries, queue))
}

// countWithin is how long a confirmation waits for a count that the change does not need.
const countWithin = time.Second

// effect says what a change will do, before it is confirmed: also what will be in force, and no longer, by the notes of a dry run.
func (s *Site) effect(p *page, o *overridePage, notes []string) (lines []string) {
	switch o.Do {
	case "kill":
		lines = append(lines, "From now on, a failed run there fails its job. Retries that were granted before still take place.")
	case "pause":
		lines = append(lines, "From now on, a retry there, or a restart by a group, waits at least until the pause ends. It counts as before.")
	case "open":
		lines = append(lines, "From now on, a retry there after such a failure is held, and counts against no limit.")
	case "close":
		lines = append(lines, "Policies decide such failures again. What is held already keeps its time, until an order starts it.")
	default:
		lines = append(lines, "Policies decide again. Jobs that failed meanwhile stay failed.")
	}
	for _, n := range notes {
		if n != api.DryNote {
			lines = append(lines, sentence(n))
		}
	}
	if s.Query.Jobs == nil {
		return lines
	}
	ctx, cancel := context.WithTimeout(p.ctx, countWithin)
	defer cancel()
	var waiting uint64
	if err := s.Query.Jobs(ctx, func(q jobdb.Queries) (err error) {
		waiting, err = q.CountJobs(&jobdb.Criteria{Queue: o.Queue, Waiting: true})
		return err
	}); err != nil {
		return append(lines, "How many jobs wait for a retry there is not known now: the job database does not say.")
	}
	return append(lines, "Waiting for a retry there now: "+plural.Of(waiting, "job")+".")
}

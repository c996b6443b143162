package web

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
)

// override is an override that holds now.
type override struct {
	Node, What, Queue, Author, Reason, Since string
	Resume                                   string // the address to end it
}

func (s *Site) overridesOf(list []*pb.BrakeState) (all []override) {
	for _, state := range list {
		b := api.OverrideOf(state)
		if b.Over(s.Now().UnixNano()) {
			continue
		}
		o := override{Node: b.Node, What: "killed", Queue: b.Queue, Author: b.Author, Reason: b.Reason, Since: query.TimeText(b.Time)}
		until := func(what string, ns int64) {
			o.What = what + " until " + time.Unix(0, ns).UTC().Format("2006-01-02 15:04 UTC")
		}
		switch {
		case b.Kill:
		case b.AvoidedUntil != 0:
			until("avoided by retries", b.AvoidedUntil)
		case b.TrustedUntil != 0:
			until("trusted", b.TrustedUntil)
		case b.Category != "":
			until("held after failures of category "+b.Cause(), b.HeldUntil)
		default:
			until("paused", b.PausedUntil)
		}
		if o.Node != "" {
			all = append(all, o)
			continue
		}
		if o.Resume = link("/overrides", "do", "resume", "queue", b.Queue); b.Queue == "" {
			o.Resume = link("/overrides", "do", "resume", "all", "yes")
		}
		all = append(all, o)
	}
	return all
}

// overridePage is the form that kills, pauses and resumes retries.
type overridePage struct {
	Now                    []override
	Do, Queue, Reason, For string
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
	if p.arg("done") != "" {
		shown.Done = "Generation " + clip(p.arg("done"), 20) + " is in force."
	}
	return p.show("overrides", "Kill and pause retries", "/overrides", shown)
}

func (s *Site) overrideForm(p *page) (*overridePage, error) {
	list, err := s.API.List(p.r.Context(), &pb.ListRequest{})
	if err != nil {
		return nil, err
	}
	shown := &overridePage{
		Now: s.overridesOf(list.Brakes), Do: p.arg("do"), Queue: p.arg("queue"), Reason: p.arg("reason"), For: p.arg("for"), All: p.arg("all") == "yes",
		May: s.API.Allowed(p.who, api.KillRetries, api.PauseRetries), Request: p.arg("request"),
	}
	if shown.For == "" {
		shown.For = "1h"
	}
	if shown.Request == "" {
		shown.Request = rand.Text()
	}
	return shown, nil
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
	var pause time.Duration
	switch shown.Do {
	case "kill":
		shown.What = "Kill retries of " + where
	case "pause":
		if pause, err = time.ParseDuration(shown.For); err != nil || pause <= 0 {
			return again(fmt.Sprintf("For %q: want a duration such as 30m or 2h.", clip(shown.For, 40)))
		}
		shown.What = fmt.Sprintf("Pause retries of %s for %v", where, pause)
	case "resume":
		shown.What = "Resume retries of " + where
	case "":
		return again("Choose what to do: kill, pause or resume.")
	default:
		return &query.Invalid{Param: "do", Err: errors.New("want kill, pause or resume")}
	}
	switch {
	case !shown.All && shown.Queue == "":
		return again("Name a queue, or choose all queues.")
	case shown.All && shown.Queue != "":
		return again("Name a queue or choose all queues, not both.")
	case shown.Reason == "":
		return again("Give a reason: it is shown to everyone affected.")
	}
	if err := s.mayOverride(p, shown.Do, shown.Queue); err != nil {
		s.API.Refused(p.r.Context(), p.who, shown.Do, err)
		return err
	}
	if p.arg("confirm") != "yes" {
		shown.Confirm = true
		shown.Effect = s.effect(p, shown)
		return p.show("overrides", shown.What, "/overrides", shown)
	}
	var done *pb.Change
	if ctx := p.r.Context(); shown.Do == "resume" {
		done, err = s.API.Release(ctx, &pb.ReleaseRequest{Queue: shown.Queue, All: shown.All, Reason: shown.Reason, RequestId: shown.Request})
	} else {
		r := &pb.BrakeRequest{Queue: shown.Queue, All: shown.All, Reason: shown.Reason, RequestId: shown.Request, Kill: shown.Do == "kill"}
		if pause > 0 {
			r.PausedUntil = timestamppb.New(s.Now().Add(pause))
		}
		done, err = s.API.Brake(ctx, r)
	}
	if err != nil {
		return err
	}
	p.to = link("/overrides", "done", fmt.Sprint(done.Generation))
	return nil
}

// mayOverride returns an error if the caller lacks the permission, before a confirmation is asked for.
func (s *Site) mayOverride(p *page, do, queue string) error {
	switch do {
	case "kill":
		return s.API.Auth.MayOn(p.who, api.KillRetries, queue)
	case "pause":
		return s.API.Auth.MayOn(p.who, api.PauseRetries, queue)
	}
	return errors.Join(s.API.Auth.MayOn(p.who, api.KillRetries, queue), s.API.Auth.MayOn(p.who, api.PauseRetries, queue))
}

// countWithin is how long a confirmation waits for a count that the change does not need.
const countWithin = time.Second

// effect says what a change will do, before it is confirmed.
func (s *Site) effect(p *page, o *overridePage) (lines []string) {
	switch o.Do {
	case "kill":
		lines = append(lines, "From now on, a failed run there fails its job. Retries that were granted before still take place.")
	case "pause":
		lines = append(lines, "From now on, a retry there, or a restart by a group, waits at least until the pause ends. It counts as before.")
	default:
		lines = append(lines, "Kill and pause end there; policies decide again. Jobs that failed meanwhile stay failed.")
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

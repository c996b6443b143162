package web

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/query"
)

// orderPage is the form by which an operator orders what becomes of a job.
type orderPage struct {
	Do, Job, Reason string
	What, Effect    string
	Request         string // makes a repeated submission one order
	May, Confirm    bool
	Problem         string
}

// ordersOn are the orders that a job takes as far as its rows say; none, if not from this caller, or not here.
func (s *Site) ordersOn(p *page, h *query.History) (all []choice) {
	if h.FromLogs || s.API.Orders == nil || !s.API.Allowed(p.who, api.OrderRetries) {
		return nil
	}
	for _, action := range []policy.OrderAction{policy.OrderRetry, policy.OrderGiveUp, policy.OrderStart} {
		anyway := action == policy.OrderStart && h.Job.Queueing.RetryAfter <= s.Now().UnixNano() // it starts
		if !anyway && audit.Refuses(h.Job, h.Runs, action) == policy.NotRefused {
			all = append(all, choice{Name: orderNames[action], Link: link("/order", "do", action.String(), "job", h.Job.JobID)})
		}
	}
	return all
}

var orderNames = map[policy.OrderAction]string{policy.OrderRetry: "Retry once", policy.OrderGiveUp: "Give up", policy.OrderStart: "Start now"}

func (s *Site) orderForm(p *page) error {
	shown, err := s.orderOf(p)
	if err != nil {
		return err
	}
	return p.show("order", shown.What, "/jobs", shown)
}

func (s *Site) orderOf(p *page) (*orderPage, error) {
	action, ok := policy.ParseOrderAction(p.arg("do"))
	shown := &orderPage{Do: p.arg("do"), Job: p.arg("job"), Reason: p.arg("reason"), Request: p.arg("request"), May: s.API.Allowed(p.who, api.OrderRetries)}
	switch {
	case !ok:
		return nil, &query.Invalid{Param: "do", Err: fmt.Errorf("%q: want %s, %s or %s", clip(shown.Do, 40), policy.OrderRetry, policy.OrderGiveUp, policy.OrderStart)}
	case shown.Job == "":
		return nil, &query.Invalid{Param: "job", Err: errors.New("missing: name a job")}
	}
	shown.What = orderNames[action] + ": job " + clip(shown.Job, 60)
	shown.Effect = "It runs once more, by your own decision, which counts against no limit."
	switch action {
	case policy.OrderGiveUp:
		shown.Effect = "It is cancelled: it does not run again, though a retry was granted."
	case policy.OrderStart:
		shown.Effect = "The retry that was granted starts now, or when a pause ends."
	case policy.OrderRetry, policy.UnknownOrder:
	}
	shown.Request = cmp.Or(shown.Request, rand.Text())
	return shown, nil
}

// order asks the service what the job would say to the order, and gives it once that is confirmed.
func (s *Site) order(p *page) error {
	shown, err := s.orderOf(p)
	if err != nil {
		return err
	}
	confirmed := p.arg("confirm") == "yes"
	done, err := s.API.Order(p.ctx, &pb.OrderRequest{Action: shown.Do, Jobs: []string{shown.Job}, Reason: shown.Reason, RequestId: shown.Request, DryRun: !confirmed})
	if code, message, ok := api.Refusal(err); ok && code == http.StatusBadRequest {
		shown.Problem = message
	} else if err != nil {
		return err
	}
	if shown.Problem == "" && done.Jobs[0].Refusal != "" {
		shown.Problem = "The job refuses: " + done.Jobs[0].Why
	}
	switch {
	case shown.Problem != "":
		p.status = http.StatusUnprocessableEntity
	case confirmed:
		p.to = link("/job", "id", shown.Job, "ordered", done.Order)
		return nil
	default:
		shown.Confirm = true
	}
	return p.show("order", shown.What, "/jobs", shown)
}

package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/suggest"
)

// Overrides (named brakes in the API) are changes too, but not of resources: they can be set even if resources
// come from another source, and editing resources does not remove them.

func (s *Service) brake(ctx context.Context, r *pb.BrakeRequest) (*pb.Change, error) {
	if r.Node != "" || r.AvoidedUntil != nil || r.TrustedUntil != nil {
		return s.overrideNode(ctx, r)
	}
	if r.Category != "" || r.Subcategory != "" || r.HeldUntil != nil {
		return s.openBreaker(ctx, r)
	}
	var verbs []Verb
	if r.Kill {
		verbs = append(verbs, KillRetries)
	}
	if r.PausedUntil != nil {
		verbs = append(verbs, PauseRetries)
	}
	until, err := untilOf("paused_until", r.PausedUntil)
	if err != nil {
		return nil, err
	}
	if len(verbs) == 0 {
		return nil, status.Error(codes.InvalidArgument, "set kill, paused_until, or both")
	}
	if err := checkTarget(r.Queue, r.All); err != nil {
		return nil, err
	}
	a := &asked{request: r, id: r.RequestId, reason: r.Reason, dryRun: r.DryRun}
	return s.override(ctx, a, verbs, r.Queue, s.known(r.Queue, r.Force), func(on []policylog.Override, who Principal) ([]policylog.Override, error) {
		now := s.Now().UnixNano()
		if err := inFuture("paused_until", until, now); err != nil {
			return nil, err
		}
		add := func(b policyfile.Override) {
			on = slices.DeleteFunc(on, func(o policylog.Override) bool {
				return o.Queue == b.Queue && o.Kill == b.Kill && o.Node == "" && o.Category == ""
			})
			on = append(on, policylog.Override{Override: b, Author: who.String(), Reason: r.Reason, Time: now})
		}
		if r.Kill {
			add(policyfile.Override{Queue: r.Queue, Kill: true})
		}
		if until != 0 {
			add(policyfile.Override{Queue: r.Queue, PausedUntil: until})
		}
		return on, nil
	})
}

// untilOf converts the end of an override, rounded up to whole milliseconds, the precision of the files; 0: there is none.
func untilOf(field string, t *timestamppb.Timestamp) (int64, error) {
	if t == nil {
		return 0, nil
	}
	if !t.IsValid() || t.AsTime().Year() > 2200 || t.AsTime().Year() < 1970 {
		return 0, status.Errorf(codes.InvalidArgument, "%s: want a time between now and the year 2200", field)
	}
	return t.AsTime().Add(time.Millisecond - time.Nanosecond).Truncate(time.Millisecond).UnixNano(), nil
}

// inFuture refuses an end that is over. It is checked when the change is made, because a repeated request may be older.
func inFuture(field string, until, now int64) error {
	if until != 0 && until <= now {
		return status.Errorf(codes.InvalidArgument, "%s: %s is not in the future", field, time.Unix(0, until).UTC().Format(time.RFC3339))
	}
	return nil
}

// overrideNode has retries avoid a node, or trusts it. Either takes the place of what was said of the node before.
func (s *Service) overrideNode(ctx context.Context, r *pb.BrakeRequest) (*pb.Change, error) {
	switch {
	case r.Node == "":
		return nil, status.Error(codes.InvalidArgument, "node: missing: name a node")
	case r.Queue != "" || r.All || r.Kill || r.PausedUntil != nil:
		return nil, status.Error(codes.InvalidArgument, "node: an override of a node is for all queues, and neither kills nor pauses")
	case (r.AvoidedUntil == nil) == (r.TrustedUntil == nil):
		return nil, status.Error(codes.InvalidArgument, "node: give either avoided_until or trusted_until")
	case !policyfile.Visible(r.Node):
		return nil, status.Errorf(codes.InvalidArgument, "node %.100q has an invisible character: remove it", r.Node)
	}
	field, end := "avoided_until", r.AvoidedUntil
	if end == nil {
		field, end = "trusted_until", r.TrustedUntil
	}
	until, err := untilOf(field, end)
	if err != nil {
		return nil, err
	}
	o := policyfile.Override{Node: r.Node, AvoidedUntil: until}
	if r.TrustedUntil != nil {
		o.AvoidedUntil, o.TrustedUntil = 0, until
	}
	a := &asked{request: r, id: r.RequestId, reason: r.Reason, dryRun: r.DryRun}
	anyNode := func(policylog.Snapshot, Principal) error { return nil } // no list of nodes is known here
	return s.override(ctx, a, []Verb{AvoidNodes}, "", anyNode, func(on []policylog.Override, who Principal) ([]policylog.Override, error) {
		now := s.Now().UnixNano()
		if err := inFuture(field, until, now); err != nil {
			return nil, err
		}
		on = slices.DeleteFunc(on, func(b policylog.Override) bool { return b.Node == r.Node })
		return append(on, policylog.Override{Override: o, Author: who.String(), Reason: r.Reason, Time: now}), nil
	})
}

// openBreaker opens a breaker, in place of one of the same cause.
func (s *Service) openBreaker(ctx context.Context, r *pb.BrakeRequest) (*pb.Change, error) {
	switch {
	case r.Category == "":
		return nil, status.Error(codes.InvalidArgument, "category: missing: name the failure category whose retries are held")
	case r.HeldUntil == nil:
		return nil, status.Error(codes.InvalidArgument, "held_until: missing: say when held retries start at the latest")
	case r.Kill || r.PausedUntil != nil:
		return nil, status.Error(codes.InvalidArgument, "category: an override that opens a breaker neither kills nor pauses")
	}
	for _, name := range []string{r.Category, r.Subcategory} {
		if name != "" && !policyfile.Visible(name) {
			return nil, status.Errorf(codes.InvalidArgument, "category or subcategory %.100q has an invisible character: remove it", name)
		}
	}
	if err := checkTarget(r.Queue, r.All); err != nil {
		return nil, err
	}
	until, err := untilOf("held_until", r.HeldUntil)
	if err != nil {
		return nil, err
	}
	o := policyfile.Override{Queue: r.Queue, Category: r.Category, Subcategory: r.Subcategory, HeldUntil: until}
	a := &asked{request: r, id: r.RequestId, reason: r.Reason, dryRun: r.DryRun}
	known := func(now policylog.Snapshot, who Principal) error {
		if err := s.known(r.Queue, r.Force)(now, who); err != nil {
			return err
		}
		return s.knownCategory(ctx, who, r)
	}
	return s.override(ctx, a, []Verb{PauseRetries}, r.Queue, known, func(on []policylog.Override, who Principal) ([]policylog.Override, error) {
		now := s.Now().UnixNano()
		if err := inFuture("held_until", until, now); err != nil {
			return nil, err
		}
		on = slices.DeleteFunc(on, func(b policylog.Override) bool { return b.SameBreaker(&o) })
		return append(on, policylog.Override{Override: o, Author: who.String(), Reason: r.Reason, Time: now}), nil
	})
}

func (s *Service) release(ctx context.Context, r *pb.ReleaseRequest) (*pb.Change, error) {
	if r.Everything && r.Queue != "" {
		return nil, status.Error(codes.InvalidArgument, "queue and everything: give only one of them")
	}
	if err := checkTarget(r.Queue, r.All || r.Everything); err != nil {
		return nil, err
	}
	removes := func(b *policylog.Override) bool {
		return b.Node == "" && b.Category == "" && (r.Everything || b.Queue == r.Queue)
	}
	verbs := []Verb{KillRetries, PauseRetries}
	switch one := (&policyfile.Override{Queue: r.Queue, Category: r.Category, Subcategory: r.Subcategory}); {
	case r.Category != "" && r.Everything:
		return nil, status.Error(codes.InvalidArgument, "category and everything: give only one of them")
	case r.Category != "":
		verbs, removes = []Verb{PauseRetries}, func(b *policylog.Override) bool { return b.SameBreaker(one) }
	case r.Subcategory != "":
		return nil, status.Error(codes.InvalidArgument, "category: missing: name the one that the subcategory belongs to")
	}
	a := &asked{request: r, id: r.RequestId, reason: r.Reason, dryRun: r.DryRun}
	var ended []string
	done, err := s.override(ctx, a, verbs, r.Queue, s.known(r.Queue, r.Force), func(on []policylog.Override, who Principal) (left []policylog.Override, _ error) {
		ended = nil
		for _, b := range on {
			switch {
			case !removes(&b):
				left = append(left, b)
			case !b.Over(s.Now().UnixNano()):
				ended = append(ended, s.lines(who, []policylog.Override{b}, noLonger)...)
			}
		}
		return left, nil
	})
	if err == nil && len(ended) == 0 {
		ended = []string{"nothing changed: there was no such override to remove"}
	}
	if err == nil {
		done.Notes = append(ended, done.Notes...)
	}
	return done, err
}

// checkTarget rejects an override for neither a queue nor all queues: an empty variable in a script must not stop
// all retries.
func checkTarget(queue string, all bool) error {
	switch {
	case queue == "" && !all:
		return status.Error(codes.InvalidArgument, "queue: missing: name a queue, or set all for all queues")
	case queue != "" && all:
		return status.Error(codes.InvalidArgument, "queue and all: give only one of them")
	}
	return nil
}

// known returns an error for a queue that no resource, override or job names. Force does not skip this for a name with
// invisible characters.
func (s *Service) known(queue string, force bool) func(policylog.Snapshot, Principal) error {
	return func(now policylog.Snapshot, who Principal) error {
		if queue == "" || force && policyfile.Visible(queue) {
			return nil
		}
		var names []string
		elsewhere := 0
		for _, id := range now.Base.Resources() {
			if id.Kind == policyfile.KindQueue {
				names = append(names, id.Name)
			}
		}
		for _, b := range now.ActiveOverrides() {
			if b.Node == "" {
				names = append(names, b.Queue)
			}
		}
		if s.Queues != nil && !slices.Contains(names, queue) {
			seen, others, err := s.Queues()
			if err != nil {
				return status.Errorf(codes.Unavailable, "queue %.100q: look up its jobs: %v; use force (--force) to skip this check", queue, err)
			}
			names, elsewhere = append(names, seen...), others
		}
		if slices.Contains(names, queue) {
			return nil
		}
		if force {
			return status.Errorf(codes.InvalidArgument, "queue %.100q is unknown and has an invisible character: remove it", queue)
		}
		names = slices.DeleteFunc(names, func(name string) bool { return !s.Auth.knows(who, name) })
		slices.Sort(names)
		where := "use force (--force) to skip this check"
		if elsewhere > 0 {
			where = fmt.Sprintf("jobs in %d partitions are known to other processes only: ask one of those, or %s", elsewhere, where)
		}
		return status.Errorf(codes.NotFound, "queue %.100q is unknown: no resource, override or job names it here: %s; %s",
			queue, suggest.Fix(queue, names, "check its name"), where)
	}
}

// override changes the active overrides, for which the caller needs the verbs on a queue; "": on all. It also removes those that have ended.
func (s *Service) override(ctx context.Context, a *asked, verbs []Verb, queue string, check func(policylog.Snapshot, Principal) error, change func([]policylog.Override, Principal) ([]policylog.Override, error)) (*pb.Change, error) {
	who, err := s.Auth.Who(ctx) // not rate-limited: it may be an emergency
	if err != nil {
		return nil, err
	}
	for _, verb := range verbs {
		if err := s.Auth.MayOn(who, verb, queue); err != nil {
			return nil, err
		}
	}
	if strings.TrimSpace(a.reason) == "" {
		return nil, status.Error(codes.InvalidArgument, "reason: missing: it is shown to everyone affected")
	}
	edit, err := newEdit(who, a)
	if err != nil {
		return nil, err
	}
	edit.Urgent = true
	edit.Make = func(now policylog.Snapshot) (*policyfile.Set, []policylog.Override, error) {
		if err := check(now, who); err != nil {
			return nil, nil, err
		}
		on, err := change(slices.Clone(now.ActiveOverrides()), who)
		if err != nil {
			return nil, nil, err
		}
		if slices.Equal(on, now.ActiveOverrides()) && !a.dryRun {
			return now.Base, on, nil
		}
		on = slices.DeleteFunc(on, func(b policylog.Override) bool { return b.Over(s.Now().UnixNano()) })
		plain := make([]policyfile.Override, len(on))
		for i := range on {
			plain[i] = on[i].Override
		}
		if _, err := now.Base.WithOverrides(plain...); err != nil {
			return nil, nil, status.Error(codes.InvalidArgument, err.Error())
		}
		if a.dryRun {
			return nil, nil, &dry{generation: now.Generation(), overrides: on}
		}
		return now.Base, on, nil
	}
	v, err := s.do(ctx, edit)
	if d, ok := errors.AsType[*dry](err); ok {
		return &pb.Change{Generation: d.generation, Notes: append(s.still(ctx, who, d.generation, d.overrides), DryNote)}, nil
	}
	if err != nil {
		return nil, err
	}
	return &pb.Change{Generation: v.Number, Notes: s.still(ctx, who, v.Number, v.Overrides)}, nil
}

// still lists what remains killed, paused, held, avoided or trusted by overrides, and by the resources of a generation themselves.
func (s *Service) still(ctx context.Context, who Principal, generation uint64, overrides []policylog.Override) []string {
	notes := s.lines(who, overrides, "")
	snap, err := s.snapshot(ctx, generation)
	if err != nil {
		return notes
	}
	for _, own := range snap.Base.OwnOverrides() {
		if !s.Auth.knowsID(who, own.ID) {
			continue
		}
		if own.PausedUntil != 0 && own.PausedUntil <= s.Now().UnixNano() {
			continue
		}
		notes = append(notes, own.String()+" itself sets "+own.Text+": change it there")
	}
	return notes
}

const noLonger = "no longer: "

// lines says what overrides do, of which the caller may know, and by whom.
func (s *Service) lines(who Principal, overrides []policylog.Override, before string) (lines []string) {
	for _, b := range s.Auth.known(who, overrides) {
		lines = append(lines, fmt.Sprintf("%s%s, by %s (%s)", before, b.Effect(), b.Author, b.Reason))
	}
	return lines
}

// knownCategory returns an error for a failure category that no failed run has had, since a misspelt one holds nothing. If nothing is
// known of any, or the job database is what is down, every category is accepted.
func (s *Service) knownCategory(ctx context.Context, who Principal, r *pb.BrakeRequest) error {
	if s.Categories == nil || r.Force {
		return nil
	}
	ctx = s.Auth.withQueues(ctx, who)
	names, err := s.Categories(ctx, r.Category)
	if err != nil || slices.Contains(names, r.Category) {
		return nil
	}
	if names, err = s.Categories(ctx, ""); err != nil || len(names) == 0 {
		return nil
	}
	fix := suggest.Fix(r.Category, names, "it is one such as "+strings.Join(names[:min(len(names), 5)], ", "))
	if of, sub, both := strings.Cut(r.Category, "/"); both && slices.Contains(names, of) {
		fix = fmt.Sprintf("give category %s and subcategory %s (--category %[1]s --subcategory %[2]s)", of, sub)
	}
	return status.Errorf(codes.NotFound, "category %.100q is unknown: no failed run here has had it: %s; use force (--force) to skip this check", r.Category, fix)
}

package api_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
)

const evict = `"rules": [{"name": "evicted", "action": "Retry", "onConditions": ["Evicted"], "retryLimit": 3}]`

// Create, read, update, delete, history and rollback of one policy.
func TestLifeOfAPolicy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "refloat-user", "ann")
	infra := &pb.GetRequest{Kind: "RetryPolicy", Name: "infra"}

	made, err := w.Create(ctx, &pb.CreateRequest{Document: w.policy("infra", evict), Reason: "new"})
	if err != nil || made.Generation != 1 || len(made.Changes) != 1 || made.Changes[0].Op != "created" {
		t.Fatalf("create: %v, %v", made, err)
	}
	_, err = w.Create(ctx, &pb.CreateRequest{Document: w.policy("infra", evict)})
	w.refused(err, codes.AlreadyExists, "RetryPolicy infra", "generation 1", "update it")
	w.create(w.queue("ml", `, "retryPolicies": ["infra"], "mode": "Shadow"`))

	got, err := w.Get(ctx, infra)
	if err != nil || got.Generation != 1 || !slices.Equal(got.UsedBy, []string{"Queue ml"}) {
		t.Fatalf("get: %v, %v", got, err)
	}
	_, err = w.Update(ctx, &pb.UpdateRequest{Document: got.Document})
	w.refused(err, codes.InvalidArgument, "generation: missing")
	got.Document.Fields["spec"].GetStructValue().Fields["retryLimit"] = structpb.NewNumberValue(7)
	made, err = w.Update(ctx, &pb.UpdateRequest{Document: got.Document, Generation: got.Generation, Reason: "more"})
	if err != nil || made.Generation != 3 || made.Changes[0].Op != "updated" {
		t.Fatalf("update: %v, %v", made, err)
	}
	_, err = w.Update(ctx, &pb.UpdateRequest{Document: w.policy("infra", `"retryLimit": 8, `+evict), Generation: 1})
	w.refused(err, codes.Aborted, "last changed in generation 3, not in 1", "by ann (not verified) (more)", "fields that differ: spec.retryLimit", "Read it again")
	_, err = w.Update(ctx, &pb.UpdateRequest{Document: w.policy("infrq", evict), Generation: 1})
	w.refused(err, codes.NotFound, "did you mean infra")

	_, err = w.Delete(ctx, &pb.DeleteRequest{Kind: "RetryPolicy", Name: "infra"})
	w.refused(err, codes.FailedPrecondition, "used by Queue ml")
	if _, err := w.Update(ctx, &pb.UpdateRequest{Document: w.queue("ml", ""), Generation: 2}); err != nil {
		t.Fatal(err)
	}
	_, err = w.Delete(ctx, &pb.DeleteRequest{Kind: "RetryPolicy", Name: "infra", Generation: 1})
	w.refused(err, codes.Aborted, "last changed in generation 3")
	dry, err := w.Delete(ctx, &pb.DeleteRequest{Kind: "RetryPolicy", Name: "infra", DryRun: true})
	if err != nil || dry.Generation != 4 || len(dry.Changes) != 1 || dry.Changes[0].Op != "deleted" {
		t.Errorf("dry run: %v, %v", dry, err)
	}
	if made, err = w.Delete(ctx, &pb.DeleteRequest{Kind: "RetryPolicy", Name: "infra", Generation: 3}); err != nil || made.Generation != 5 {
		t.Fatalf("delete: %v, %v", made, err)
	}
	_, err = w.Get(ctx, infra)
	w.refused(err, codes.NotFound, "RetryPolicy infra does not exist")
	_, err = w.Update(ctx, &pb.UpdateRequest{Document: w.policy("infra", evict), Generation: 3})
	w.refused(err, codes.Aborted, "no longer exists", "generation 5")

	if made, err = w.RollBack(ctx, &pb.RollBackRequest{Kind: "RetryPolicy", Name: "infra", To: 1}); err != nil || made.Changes[0].Op != "created" {
		t.Fatalf("roll back: %v, %v", made, err)
	}
	_, err = w.RollBack(ctx, &pb.RollBackRequest{Kind: "RetryPolicy", Name: "infra", To: 99})
	w.refused(err, codes.NotFound, "generation does not exist: 99")
	then, err := w.Get(ctx, &pb.GetRequest{Kind: "RetryPolicy", Name: "infra", Generation: 3})
	if err != nil || then.Document.Fields["spec"].GetStructValue().Fields["retryLimit"].GetNumberValue() != 7 {
		t.Errorf("as it was: %v, %v", then, err)
	}
	h, err := w.History(ctx, &pb.HistoryRequest{Kind: "RetryPolicy", Name: "infra"})
	if err != nil {
		t.Fatal(err)
	}
	var story []string
	for _, g := range h.Generations {
		story = append(story, g.Changes[0].Op+" by "+g.Author+" for "+g.Reason)
	}
	want := []string{
		"created by ann (not verified) for ", "deleted by ann (not verified) for ",
		"updated by ann (not verified) for more", "created by ann (not verified) for new",
	}
	if !slices.Equal(story, want) || !h.Generations[0].Time.AsTime().Equal(noon) {
		t.Errorf("history %q", story)
	}
}

// TestGroupPolicies: group policies have the history, the compare-and-set and the errors of policies. A policy of the same
// name is another resource, and what is left without retry policies is refused as before.
func TestGroupPolicies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	gang := &pb.GetRequest{Kind: "GroupPolicy", Name: "gang"}
	w.create(w.group("gang", `"rules": []`), w.policy("gang", evict), w.queue("ml", `, "retryPolicies": ["gang"]`))
	got, err := w.Get(ctx, gang)
	if err != nil || got.Generation != 1 || len(got.UsedBy) > 0 {
		t.Fatalf("get: %v, %v", got, err)
	}
	if rules := got.Document.Fields["spec"].GetStructValue().Fields["rules"]; rules == nil || len(rules.GetListValue().GetValues()) != 0 {
		t.Errorf("the empty list of rules is lost: %v", got.Document)
	}
	_, err = w.Update(ctx, &pb.UpdateRequest{Document: w.group("gang", `"parts": [{"name": "a", "after": ["b"]}]`), Generation: 1})
	w.refused(err, codes.InvalidArgument, "spec.parts[0].after[0]", "no part b")
	if made, err := w.Update(ctx, &pb.UpdateRequest{Document: w.group("gang", `"maxRestarts": 3`), Generation: 1}); err != nil || made.Generation != 4 {
		t.Fatalf("update: %v, %v", made, err)
	}
	_, err = w.Update(ctx, &pb.UpdateRequest{Document: w.group("gang", `"maxRestarts": 4`), Generation: 1})
	w.refused(err, codes.Aborted, "GroupPolicy gang was last changed in generation 4, not in 1", "spec.maxRestarts")
	if code, body := w.rest("GET", "/refloat/v1/resources/GroupPolicy/gang", ""); code != 200 || !strings.Contains(body, `"maxRestarts"`) {
		t.Errorf("over REST: %d %s", code, body)
	}
	// The policy is used by the queue, the group policy by nothing that the set knows.
	if made, err := w.Delete(ctx, &pb.DeleteRequest{Kind: "GroupPolicy", Name: "gang"}); err != nil || made.Generation != 5 {
		t.Fatalf("delete: %v, %v", made, err)
	}
	if made, err := w.RollBack(ctx, &pb.RollBackRequest{Kind: "GroupPolicy", Name: "gang", To: 1}); err != nil || made.Changes[0].Op != "created" {
		t.Fatalf("roll back: %v, %v", made, err)
	}
	h, err := w.History(ctx, &pb.HistoryRequest{Kind: "GroupPolicy", Name: "gang"})
	if err != nil || len(h.Generations) != 4 {
		t.Errorf("history: %v, %v", h, err)
	}
	if list, err := w.List(ctx, &pb.ListRequest{Kind: "GroupPolicy"}); err != nil || len(list.Resources) != 1 {
		t.Errorf("list: %v, %v", list, err)
	}
	apply := func(prune bool, docs ...*structpb.Struct) error {
		_, err := w.Apply(ctx, &pb.ApplyRequest{Documents: docs, Prune: prune})
		return err
	}
	w.refused(apply(true, w.group("gang", "")), codes.FailedPrecondition, "no policy is left")
	if err := apply(true, w.policy("gang", evict)); err != nil {
		t.Errorf("without the group policy: %v", err)
	}
	_, err = w.Get(ctx, gang)
	w.refused(err, codes.NotFound, "GroupPolicy gang does not exist")
}

// TestBadDocuments checks that every problem of a document is reported at once, by field.
func TestBadDocuments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.Create(t.Context(), &pb.CreateRequest{Document: w.policy("Infra", `"retryLimit": -1, "rules": [{"action": "Retri"}]`)})
	w.refused(err, codes.InvalidArgument, "metadata.name", "spec.retryLimit", "spec.rules[0].action")
	var fields []string
	for _, d := range status.Convert(err).Details() {
		for _, v := range d.(*errdetails.BadRequest).GetFieldViolations() {
			fields = append(fields, v.Field)
		}
	}
	if !slices.Contains(fields, "document: spec.rules[0].action") || len(fields) < 3 {
		t.Errorf("violations of %q", fields)
	}
	for text, words := range map[string]string{
		`{}`: "document: missing", `{"kind": "Pod"}`: "kind", `{"kind": "Queue", "name": "a", "retryPolicies": ["x", "y"]}`: `["x" "y"]: create them first`,
		`{"kind": "RetrySettings", "spec": {"defaultPolicyName": "x"}}`:                                  `["x"]: create them first`,
		`{"kind": "Queue", "name": "a", "killed": "yes"}`:                                                "killed",
		`{"kind": "Queue", "name": "` + strings.Repeat("a", 1<<20) + `"}`:                                "document",
		`{"kind": "Queue", "name": "a", "x": ` + strings.Repeat(`[`, 40) + strings.Repeat(`]`, 40) + `}`: "document",
	} {
		_, err := w.Create(t.Context(), &pb.CreateRequest{Document: w.doc(text)})
		if c := status.Code(err); c != codes.InvalidArgument && c != codes.FailedPrecondition || !strings.Contains(err.Error(), words) {
			t.Errorf("%.80s: %v", text, err)
		}
	}
	_, err = w.List(t.Context(), &pb.ListRequest{Kind: "RetryPolcy"})
	w.refused(err, codes.InvalidArgument, "did you mean RetryPolicy?")
	if s, err := w.Status(t.Context(), &pb.StatusRequest{}); err != nil || s.Generation != 0 {
		t.Errorf("something was written: %v, %v", s, err)
	}
}

// Apply is one generation, all or nothing; prune removes what is not named.
func TestApply(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(w.policy("old", ""), w.queue("gone", ""))
	docs := []*structpb.Struct{w.queue("ml", `, "retryPolicies": ["infra"]`), w.policy("infra", evict), w.policy("old", "")}
	dry, err := w.Apply(t.Context(), &pb.ApplyRequest{Documents: docs, Prune: true, DryRun: true})
	if err != nil || len(dry.Changes) != 3 || dry.Generation != 2 {
		t.Fatalf("dry run: %v, %v", dry, err)
	}
	_, err = w.Apply(t.Context(), &pb.ApplyRequest{Documents: append(docs, w.policy("bad", `"x": 1`))})
	w.refused(err, codes.InvalidArgument, "documents[3]", "spec.x")
	_, err = w.Apply(t.Context(), &pb.ApplyRequest{Documents: docs, Generation: 1})
	w.refused(err, codes.Aborted, "generation 2", "is newer than generation 1")
	for i, want := range []int{3, 0} { // the second time nothing is to be changed
		made, err := w.Apply(t.Context(), &pb.ApplyRequest{Documents: docs, Prune: true})
		if err != nil || made.Generation != 3 || len(made.Changes) != want {
			t.Errorf("apply %d: %v, %v", i, made, err)
		}
	}
	_, err = w.Apply(t.Context(), &pb.ApplyRequest{})
	w.refused(err, codes.InvalidArgument, "documents: none")
}

// TestWritersAtOnce checks that of many concurrent writers of one policy each succeeds once or gets an error, and
// that repeating a request with the same id changes nothing.
func TestWritersAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(w.policy("infra", `"retryLimit": 0`))
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 16 {
		if i%4 == 0 {
			w.serve() // another process
		}
		c := w.PoliciesClient
		doc := w.policy("infra", `"retryLimit": `+string(rune('1'+i%9)))
		wg.Go(func() {
			r := &pb.UpdateRequest{Document: doc, Generation: 1, RequestId: "r" + string(rune('a'+i)), Reason: string(rune('a' + i))}
			first, err := c.Update(t.Context(), r)
			if err != nil {
				w.refused(err, codes.Aborted, "Read it again")
				return
			}
			again, err := c.Update(t.Context(), r)
			if err != nil || again.Generation != first.Generation || len(again.Changes) != 1 {
				t.Errorf("asked again: %v, %v; first %v", again, err, first)
			}
			mu.Lock()
			defer mu.Unlock()
			won++
		})
	}
	wg.Wait()
	if s, err := w.Status(t.Context(), &pb.StatusRequest{}); err != nil || s.Generation < 2 || won != 1 {
		t.Errorf("%d won; %v, %v", won, s, err)
	}
	_, err := w.Create(t.Context(), &pb.CreateRequest{Document: w.queue("x", ""), RequestId: "one"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Create(t.Context(), &pb.CreateRequest{Document: w.queue("y", ""), RequestId: "one"})
	w.refused(err, codes.AlreadyExists, "another change")
	if again, err := w.Create(t.Context(), &pb.CreateRequest{Document: w.queue("x", ""), RequestId: "one"}); err != nil || len(again.Changes) != 1 {
		t.Errorf("asked again: %v, %v", again, err)
	}
}

func TestOverrides(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *api.Service) { s.Fixed.Why = "policies come from files" })
	_, err := w.Create(t.Context(), &pb.CreateRequest{Document: w.queue("x", "")})
	w.refused(err, codes.FailedPrecondition, "come from files")

	_, err = w.Brake(t.Context(), &pb.BrakeRequest{All: true, Kill: true})
	w.refused(err, codes.InvalidArgument, "reason: missing")
	_, err = w.Brake(t.Context(), &pb.BrakeRequest{All: true, Reason: "r"})
	w.refused(err, codes.InvalidArgument, "kill, paused_until")
	_, err = w.Brake(t.Context(), &pb.BrakeRequest{All: true, Reason: "r", PausedUntil: timestamppb.New(noon)})
	w.refused(err, codes.InvalidArgument, "not in the future")
	_, err = w.Brake(t.Context(), &pb.BrakeRequest{Reason: "r", Kill: true, Force: true, Queue: "a\nb"})
	w.refused(err, codes.InvalidArgument, "queue")

	until := timestamppb.New(noon.Add(time.Hour))
	for want, r := range map[string]*pb.BrakeRequest{
		"node: missing": {AvoidedUntil: until}, "neither kills": {Node: "n", AvoidedUntil: until, All: true}, "either": {Node: "n"}, "either avoided_until or": {Node: "n", AvoidedUntil: until, TrustedUntil: until},
		"invisible": {Node: "n\u200b", AvoidedUntil: until}, "trusted_until: 2026": {Node: "n", TrustedUntil: timestamppb.New(noon)}, "a space": {Node: "a b", AvoidedUntil: until},
	} {
		r.Reason = "r"
		_, err := w.Brake(t.Context(), r)
		w.refused(err, codes.InvalidArgument, want)
	}
	for want, r := range map[string]*pb.BrakeRequest{
		"category: missing": {HeldUntil: until, All: true}, "held_until: missing": {Category: "c", All: true}, "neither kills nor pauses": {Category: "c", HeldUntil: until, All: true, Kill: true},
		"name a queue": {Category: "c", HeldUntil: until}, "held_until: 2026": {Category: "c", HeldUntil: timestamppb.New(noon), All: true},
		"subcategory": {Category: "c", Subcategory: "a\x00b", HeldUntil: until, All: true}, "an invisible": {Category: "c\u200b", HeldUntil: until, All: true},
	} {
		r.Reason = "r"
		_, err := w.Brake(t.Context(), r)
		w.refused(err, codes.InvalidArgument, want)
	}
	short := &pb.BrakeRequest{Force: true, Queue: "other", PausedUntil: until, Reason: "short", RequestId: "short"}
	for _, now := range []time.Time{noon, noon.Add(2 * time.Hour)} { // asked again when the pause is over
		w.service.Now = func() time.Time { return now }
		if made, err := w.Brake(t.Context(), short); err != nil || made.Generation != 1 {
			t.Errorf("pause: %v, %v", made, err)
		}
	}
	_, err = w.Release(t.Context(), &pb.ReleaseRequest{Queue: "other", Reason: "r"})
	if w.service.Now = func() time.Time { return noon }; err != nil {
		t.Fatal(err)
	}
	for i, r := range []*pb.BrakeRequest{{Queue: "ml", Force: true, Kill: true, Reason: "bad image"}, {All: true, PausedUntil: until, Reason: "storage"}, {Queue: "ml", Kill: true, Reason: "worse"}} {
		if made, err := w.Brake(t.Context(), r); err != nil || made.Generation != uint64(i+3) {
			t.Fatalf("override %d: %v, %v", i, made, err)
		}
	}
	s, err := w.Status(t.Context(), &pb.StatusRequest{})
	if err != nil || len(s.Brakes) != 2 || s.Brakes[1].Reason != "worse" || !s.Brakes[0].PausedUntil.AsTime().Equal(noon.Add(time.Hour)) || s.ReadOnly == "" {
		t.Errorf("status %v, %v", s, err)
	}
	snap, err := w.service.Store.Newest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if text := string(snap.Set.Canonical()); !strings.Contains(text, `"killed":true`) || !strings.Contains(text, "2026-11-21T13:00:00Z") {
		t.Errorf("what decides: %s", text)
	}
	made, err := w.Release(t.Context(), &pb.ReleaseRequest{Queue: "ml", Reason: "mended"})
	if err != nil || len(made.Notes) != 2 || !strings.HasPrefix(made.Notes[0], "no longer: retries of queue ml are killed") || !strings.Contains(made.Notes[1], "all queues are paused until") {
		t.Errorf("release: %v, %v", made, err)
	}
	if made, err = w.Release(t.Context(), &pb.ReleaseRequest{Everything: true, Reason: "mended"}); err != nil || len(made.Notes) != 1 || !strings.HasPrefix(made.Notes[0], "no longer: ") {
		t.Errorf("release: %v, %v", made, err)
	}
	h, err := w.History(t.Context(), &pb.HistoryRequest{})
	if err != nil || len(h.Generations) != 7 || !slices.Equal(h.Generations[0].BrakeChanges, made.Notes) || !slices.Equal(h.Generations[1].BrakeChanges, []string{"no longer: retries of queue ml are killed, by anonymous (not verified) (worse)"}) {
		t.Errorf("history %v, %v", h, err)
	}
}

// A release of retries leaves breakers open, and one of a breaker everything else.
func TestReleaseOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	until := timestamppb.New(noon.Add(time.Hour))
	for _, r := range []*pb.BrakeRequest{
		{All: true, Kill: true, Reason: "r"}, {All: true, Category: "gpu", HeldUntil: until, Reason: "r"}, {All: true, Category: "gpu", Subcategory: "xid", HeldUntil: until, Reason: "r"},
	} {
		if _, err := w.Brake(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		r    *pb.ReleaseRequest
		ends []string
	}{
		{&pb.ReleaseRequest{All: true, Category: "gpu", Reason: "r"}, []string{"category gpu are"}},
		{&pb.ReleaseRequest{Everything: true, Reason: "r"}, []string{"are killed"}},
		{&pb.ReleaseRequest{All: true, Category: "gpu", Subcategory: "xid", Reason: "r"}, []string{"category gpu/xid are"}},
		{&pb.ReleaseRequest{All: true, Category: "gpu", Reason: "r"}, nil},
	} {
		made, err := w.Release(t.Context(), c.r)
		if err != nil {
			t.Fatal(err)
		}
		ended := slices.DeleteFunc(made.Notes, func(n string) bool { return !strings.HasPrefix(n, "no longer: ") })
		if len(ended) != len(c.ends) || len(ended) == 1 && !strings.Contains(ended[0], c.ends[0]) {
			t.Errorf("%v ended %q, want %q", c.r, ended, c.ends)
		}
	}
}

// A misspelt category would hold nothing.
func TestUnknownCategory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	open := func(category, subcategory string, force bool) error {
		_, err := w.Brake(t.Context(), &pb.BrakeRequest{All: true, Category: category, Subcategory: subcategory, HeldUntil: timestamppb.New(noon.Add(time.Hour)), Reason: "r", Force: force})
		return err
	}
	known, problem := []string{"infrastructure", "user"}, error(nil)
	w.service.Categories = func(_ context.Context, text string) (names []string, _ error) {
		return slices.DeleteFunc(slices.Clone(known), func(n string) bool { return !strings.Contains(n, text) }), problem
	}
	w.refused(open("infrastucture", "", false), codes.NotFound, "did you mean infrastructure?")
	w.refused(open("infrastructure/network", "", false), codes.NotFound, "--category infrastructure --subcategory network")
	for _, ok := range []error{open("infrastructure", "network", false), open("infrastucture", "", true)} {
		if ok != nil {
			t.Error(ok)
		}
	}
	if known = nil; open("gpu", "", false) != nil {
		t.Error("refused where no category is known")
	}
	if known, problem = []string{"user"}, errors.New("no database"); open("network", "", false) != nil {
		t.Error("refused because the job database is down")
	}
}

// TestOverridesDryRun: a dry run answers with what would be in force, checks all that the change would check, and
// changes nothing.
func TestOverridesDryRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(w.queue("ml", ""))
	if _, err := w.Brake(t.Context(), &pb.BrakeRequest{Queue: "ml", Kill: true, Reason: "bad image"}); err != nil {
		t.Fatal(err)
	}
	before, err := w.service.Store.Newest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	made, err := w.Brake(t.Context(), &pb.BrakeRequest{All: true, Kill: true, Reason: "storage", DryRun: true})
	notes := strings.Join(made.GetNotes(), "\n")
	if err != nil || !strings.Contains(notes, "retries of all queues are killed") || !strings.Contains(notes, "retries of queue ml are killed") || !strings.Contains(notes, "this was a dry run") {
		t.Errorf("kill: %v, %v", made, err)
	}
	_, err = w.Brake(t.Context(), &pb.BrakeRequest{Queue: "mll", Kill: true, Reason: "x", DryRun: true})
	w.refused(err, codes.NotFound, "did you mean ml?")
	made, err = w.Release(t.Context(), &pb.ReleaseRequest{Everything: true, Reason: "mended", DryRun: true})
	if err != nil || len(made.Notes) != 2 || !strings.HasPrefix(made.Notes[0], "no longer: retries of queue ml are killed") || made.Notes[1] != api.DryNote {
		t.Errorf("release: %v, %v", made, err)
	}
	if after, err := w.service.Store.Newest(t.Context()); err != nil || after.Generation() != before.Generation() || made.Generation != before.Generation() {
		t.Errorf("generation %d after a dry run, %d before: %v", after.Generation(), before.Generation(), err)
	}
}

// A release says what is killed by the resources themselves.
func TestOwnOverridesStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(w.queue("ml", `, "killed": true`), w.doc(`{"kind": "RetrySettings", "spec": {"globalMaxRetries": 0, "pausedUntil": "2026-11-21T11:00:00Z"}}`))
	made, err := w.Release(t.Context(), &pb.ReleaseRequest{Everything: true, Reason: "on"})
	if err != nil || len(made.Notes) != 3 || !strings.Contains(strings.Join(made.Notes, ";"), "Queue ml itself sets killed: true: change it there") {
		t.Errorf("release: %v, %v", made, err)
	}
}

func TestREST(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct {
		method, path, body string
		code               int
		has                string
	}{
		{"POST", "/refloat/v1/resources?reason=new", `{"kind": "Queue", "name": "ml", "mode": "Shadow"}`, 200, `"op":"created"`},
		{"GET", "/refloat/v1/resources/Queue/ml", "", 200, `"generation":"1"`},
		{"PUT", "/refloat/v1/resources?generation=1", `{"kind": "Queue", "name": "ml"}`, 200, `"generation":"2"`},
		{"PUT", "/refloat/v1/resources?generation=1", `{"kind": "Queue", "name": "ml", "mode": "Shadow"}`, 409, "Read it again"},
		{"GET", "/refloat/v1/resources?generation=1", "", 200, "Shadow"},
		{"GET", "/refloat/v1/history?kind=Queue&name=ml", "", 200, `"reason":"new"`},
		{"POST", "/refloat/v1/rollback", `{"to": "1"}`, 200, `"updated"`},
		{"POST", "/refloat/v1/brakes", `{"queue": "ml", "kill": true, "reason": "x"}`, 200, "are killed"},
		{"POST", "/refloat/v1/brakes:release", `{"queue": "ml", "reason": "x"}`, 200, `no longer: retries of queue ml are killed`},
		{"GET", "/refloat/v1/status", "", 200, `"generation":"5"`},
		{"DELETE", "/refloat/v1/resources/Queue/ml", "", 200, `"deleted"`},
		{"GET", "/refloat/v1/resources/RetrySettings", "", 404, "RetrySettings does not exist"},
		{"POST", "/refloat/v1/resources", `{"kind": `, 400, ""},
		{"POST", "/refloat/v1/apply", `{"documents": [], "x": 1}`, 400, ""},
		{"POST", "/refloat/v1/apply", `{"documents": [{"kind": "` + strings.Repeat("x", 33<<20) + `"}]}`, 413, "larger than 32 MiB"},
		{"POST", "/refloat/v1/apply", `{"documents": [{"kind": [` + strings.Repeat("0,", 5<<20) + `0]}]}`, 400, "values"},
		{"POST", "/refloat/v1/status", "{}", 405, "method POST is not allowed for this path"},
		{"POST", "/refloat/v1/resources?reason=%ff", `{"kind": "Queue", "name": "x"}`, 400, "not UTF-8"},
		{"POST", "/refloat/v1/resources?reason=%1b%5b2J", `{"kind": "Queue", "name": "x"}`, 400, "not printable"},
		{"GET", "/refloat/v2", "", http.StatusNotFound, ""},
	} {
		code, body := w.rest(c.method, c.path, c.body)
		if code != c.code || !strings.Contains(strings.ReplaceAll(body, `": `, `":`), c.has) {
			t.Errorf("%s %s: %d %.300s", c.method, c.path, code, body)
		}
	}
}

func TestTooManyWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *api.Service) { s.Writes = rate.NewLimiter(1, 2) })
	w.create(w.queue("a", ""), w.queue("b", ""))
	_, err := w.Create(t.Context(), &pb.CreateRequest{Document: w.queue("c", "")})
	w.refused(err, codes.ResourceExhausted, "more than 1 changes a second")
	if _, err := w.Brake(t.Context(), &pb.BrakeRequest{All: true, Kill: true, Reason: "an emergency"}); err != nil {
		t.Errorf("kill: %v", err)
	}
}

// An override names a queue that exists, or all queues: nothing that is left out, empty
// or mistyped stops the retries of others.
func TestOverridesNameTheirTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *api.Service) {
		s.Queues = func() ([]string, int, error) { return []string{"genomics"}, 3, nil }
	})
	w.create(w.queue("ml", ""))
	kill := func(r *pb.BrakeRequest) error {
		r.Kill, r.Reason = true, "INC-1"
		_, err := w.Brake(t.Context(), r)
		return err
	}
	release := func(r *pb.ReleaseRequest) error {
		r.Reason = "over"
		_, err := w.Release(t.Context(), r)
		return err
	}
	w.refused(kill(&pb.BrakeRequest{}), codes.InvalidArgument, "name a queue, or set all")
	w.refused(kill(&pb.BrakeRequest{Queue: "ml", All: true}), codes.InvalidArgument, "give only one of them")
	w.refused(release(&pb.ReleaseRequest{}), codes.InvalidArgument, "name a queue, or set all")
	w.refused(release(&pb.ReleaseRequest{Queue: "ml", All: true}), codes.InvalidArgument, "give only one of them")
	if code, text := w.rest("POST", "/refloat/v1/brakes", `{"queue": "", "kill": true, "reason": "x"}`); code != 400 {
		t.Errorf("REST without a queue: %d %s", code, text)
	}
	w.refused(kill(&pb.BrakeRequest{Queue: "mll"}), codes.NotFound, `queue "mll" is unknown`, "did you mean ml?", "jobs in 3 partitions are known to other processes only", "--force")
	w.refused(kill(&pb.BrakeRequest{Queue: "genomcs"}), codes.NotFound, "did you mean genomics?")
	w.refused(release(&pb.ReleaseRequest{Queue: "physics"}), codes.NotFound, "check its name", "--force")
	for _, fine := range []*pb.BrakeRequest{{Queue: "ml"}, {Queue: "genomics"}, {Queue: "physics", Force: true}, {All: true}} {
		if err := kill(fine); err != nil {
			t.Error(err)
		}
	}
	w.refused(kill(&pb.BrakeRequest{Queue: "m\u200bl", Force: true}), codes.InvalidArgument, "an invisible character")
	// What an override names is known.
	if err := release(&pb.ReleaseRequest{Queue: "physics"}); err != nil {
		t.Error(err)
	}
	// What has no effect says so.
	for _, effect := range []bool{true, false} {
		done, err := w.Release(t.Context(), &pb.ReleaseRequest{Queue: "genomics", Reason: "over"})
		if err != nil {
			t.Fatal(err)
		}
		if notes := strings.Join(done.Notes, "; "); strings.Contains(notes, "nothing changed") == effect {
			t.Errorf("notes of a resume with effect %v: %s", effect, notes)
		}
	}
	back, err := w.RollBack(t.Context(), &pb.RollBackRequest{Kind: policyfile.KindQueue, Name: "ml", To: 1})
	if err != nil || !strings.Contains(strings.Join(back.Notes, "; "), "nothing changed: Queue ml is as it was in generation 1") {
		t.Errorf("a rollback without effect: %v, %v", back, err)
	}
	w.service.Queues = func() ([]string, int, error) { return nil, 0, errors.New("the state is damaged") }
	w.refused(kill(&pb.BrakeRequest{Queue: "new"}), codes.Unavailable, "the state is damaged", "--force")
}

// stuck is a topic that never finds its end.
type stuck struct {
	eventlog.Topic
	until chan struct{}
}

func (s *stuck) End(int) (eventlog.Position, error) {
	<-s.until
	return eventlog.Position{}, errors.New("stuck")
}

// TestStuckLog checks that a request without a deadline does not wait for the log forever.
func TestStuckLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	topic := &stuck{Topic: w.log, until: make(chan struct{})}
	store, err := policylog.OpenStore(topic, w.append, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	t.Cleanup(func() { close(topic.until) })
	s := &api.Service{Store: store, Now: time.Now, Timeout: 50 * time.Millisecond}
	for what, call := range map[string]func() error{
		"update": func() error {
			_, err := s.Update(t.Context(), &pb.UpdateRequest{Document: w.queue("ml", ""), Generation: 1})
			return err
		},
		"delete": func() error {
			_, err := s.Delete(t.Context(), &pb.DeleteRequest{Kind: "Queue", Name: "ml"})
			return err
		},
		"roll back": func() error { _, err := s.RollBack(t.Context(), &pb.RollBackRequest{To: 1}); return err },
		"history":   func() error { _, err := s.History(t.Context(), &pb.HistoryRequest{}); return err },
	} {
		done := make(chan error, 1)
		go func() { done <- call() }()
		select {
		case err := <-done:
			w.refused(err, codes.Unavailable, "deadline")
		case <-time.After(time.Minute):
			t.Errorf("%s waits for the log", what)
		}
	}
}

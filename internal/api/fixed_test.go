package api_test

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
)

// Where policies and bindings come from elsewhere, they are read-only by any way;
// settings, overrides and what else queues say are not.
func TestPoliciesOnlyFixed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(w.policy("infra", evict), w.policy("app", ""), w.queue("ml", `, "retryPolicies": ["infra"]`))
	w.serve(func(s *api.Service) { s.Fixed = api.Fixed{Why: "policies come from Armada", PoliciesOnly: true} })
	ctx := t.Context()
	apply := func(prune bool, docs ...*structpb.Struct) error {
		_, err := w.Apply(ctx, &pb.ApplyRequest{Documents: docs, Prune: prune, Reason: "test"})
		return err
	}
	ml := func(want string) {
		t.Helper()
		code, body := w.rest("GET", "/refloat/v1/resources?kind=Queue", "")
		if code != 200 {
			t.Errorf("%d %s", code, body)
		}
		set, err := w.service.Store.Newest(ctx)
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, id := range set.Base.Resources() {
			if id.Kind == "Queue" {
				body, _ := set.Base.Body(id)
				text += body
			}
		}
		if text != want {
			t.Errorf("queues %s, want %s", text, want)
		}
	}
	const bound = `{"name":"ml","retryPolicies":["infra"]}`

	for what, err := range map[string]error{
		"create":  apply(false, w.policy("new", "")),
		"update":  apply(false, w.policy("infra", "")),
		"rebind":  apply(false, w.queue("ml", `, "retryPolicies": ["app"]`)),
		"reorder": apply(false, w.queue("ml", `, "retryPolicies": ["infra", "app"]`)),
		"bind":    apply(false, w.queue("new", `, "retryPolicies": ["app"]`)),
	} {
		if err == nil {
			t.Errorf("%s was done", what)
			continue
		}
		w.refused(err, codes.FailedPrecondition, "policies come from Armada", "would")
	}
	_, err := w.Delete(ctx, &pb.DeleteRequest{Kind: "RetryPolicy", Name: "app"})
	w.refused(err, codes.FailedPrecondition, "RetryPolicy app would be deleted")
	_, err = w.RollBack(ctx, &pb.RollBackRequest{To: 1})
	w.refused(err, codes.FailedPrecondition, "RetryPolicy app would be deleted")
	_, err = w.armadactl("CreateRetryPolicy", text(nName, "new"), number(nDefault, actFail))
	w.refused(err, codes.FailedPrecondition, "policies come from Armada", "RetryPolicy new would be created")
	_, err = w.armadactl("DeleteRetryPolicy", text(1, "app"))
	w.refused(err, codes.FailedPrecondition, "policies come from Armada")
	ml(bound)

	// Group policies are ours: Armada has none.
	if err := apply(false, w.group("gang", `"maxRestarts": 3`)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Delete(ctx, &pb.DeleteRequest{Kind: "GroupPolicy", Name: "gang"}); err != nil {
		t.Fatal(err)
	}

	// A queue's mode is ours, with or without its policies in the document.
	for _, rest := range []string{`, "mode": "Shadow"`, `, "mode": "Shadow", "retryPolicies": ["infra"]`} {
		if err := apply(false, w.queue("ml", rest)); err != nil {
			t.Error(err)
		}
		ml(`{"mode":"Shadow","name":"ml","retryPolicies":["infra"]}`)
	}
	settings := w.doc(`{"kind": "RetrySettings", "spec": {"globalMaxRetries": 3, "defaultPolicyName": "app"}}`)
	if err := apply(false, settings, w.queue("other", `, "mode": "Shadow"`)); err != nil {
		t.Error(err)
	}
	// prune and delete take away what is ours, and no more.
	if err := apply(true, settings); err != nil {
		t.Error(err)
	}
	ml(bound)
	if err := apply(false, w.queue("ml", `, "mode": "Shadow"`)); err != nil {
		t.Error(err)
	}
	if _, err := w.Delete(ctx, &pb.DeleteRequest{Kind: "Queue", Name: "ml"}); err != nil {
		t.Error(err)
	}
	ml(bound)
	// A queue may name a policy there that cannot be used here; its mode is still ours.
	_, err = w.service.Store.Do(ctx, policylog.Edit{Make: func(now policylog.Snapshot) (*policyfile.Set, []policylog.Override, error) {
		set, _ := now.Base.Bound([]policyfile.Binding{{Queue: "ml", Policies: []string{"infra", "ghost"}}})
		return set, nil, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := apply(false, w.queue("ml", `, "mode": "Shadow"`)); err != nil {
		t.Error(err)
	}
	ml(`{"mode":"Shadow","name":"ml","retryPolicies":["infra","ghost"]}`)
	w.refused(apply(false, w.doc(`{"kind": "RetrySettings", "spec": {"defaultPolicyName": "ghost"}}`)), codes.FailedPrecondition, `"ghost"`)
	if _, err := w.Brake(ctx, &pb.BrakeRequest{Queue: "ml", Force: true, Kill: true, Reason: "test"}); err != nil {
		t.Error(err)
	}
	if s, err := w.Status(ctx, &pb.StatusRequest{}); err != nil || s.ReadOnly != "policies come from Armada" {
		t.Errorf("status %v, %v", s, err)
	}
	if list, err := w.List(ctx, &pb.ListRequest{Kind: "RetryPolicy"}); err != nil || len(list.Resources) != 2 {
		t.Errorf("policies %v, %v", list, err)
	}
}

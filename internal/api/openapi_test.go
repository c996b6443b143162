package api_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/refloat/refloat/internal/api"
	jobspb "github.com/refloat/refloat/internal/api/jobs/pb"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/test/openapitest"
)

// TestOpenAPIHasAllRoutes: the document is valid, and has the routes of the services and no other.
func TestOpenAPIHasAllRoutes(t *testing.T) {
	t.Parallel()
	doc, err := openapitest.Document(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			got = append(got, method+" "+path)
		}
	}
	for _, file := range []protoreflect.FileDescriptor{pb.File_internal_api_pb_policies_proto, pb.File_internal_api_pb_armada_proto, jobspb.File_internal_api_jobs_pb_jobs_proto} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				want = append(want, routesOf(t, methods.Get(j))...)
			}
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" || len(got) < 20 {
		t.Errorf("%d routes; those of the services (-) and of the document (+): run make gen\n%s", len(got), diff)
	}
	if number := doc.Components.Schemas["refloat.jobs.v1.Decision"].Value.Properties["number"].Value; !number.Type.Is("string") {
		t.Errorf("a number of 64 bits is %v, want a string", number.Type)
	}
}

func routesOf(t *testing.T, m protoreflect.MethodDescriptor) (routes []string) {
	t.Helper()
	if !proto.HasExtension(m.Options(), annotations.E_Http) {
		return nil // gRPC only
	}
	main := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
	for _, rule := range append(main.GetAdditionalBindings(), main) {
		switch p := rule.Pattern.(type) {
		case *annotations.HttpRule_Get:
			routes = append(routes, "GET "+p.Get)
		case *annotations.HttpRule_Put:
			routes = append(routes, "PUT "+p.Put)
		case *annotations.HttpRule_Post:
			routes = append(routes, "POST "+p.Post)
		case *annotations.HttpRule_Delete:
			routes = append(routes, "DELETE "+p.Delete)
		default:
			t.Fatalf("%s: a route of type %T", m.FullName(), p)
		}
	}
	return routes
}

// TestOpenAPIIsServed: whoever signs in gets the document.
func TestOpenAPIIsServed(t *testing.T) {
	t.Parallel()
	auth := &api.Auth{Tokens: map[string]api.Token{"ci": {SHA256: digestOf(ciToken)}}}
	if err := auth.Check(); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(s *api.Service) { s.Auth = auth })
	signedIn := []string{"Authorization", "Bearer " + ciToken}
	if status, body := w.rest(http.MethodGet, api.OpenAPIPath, "", signedIn...); status != http.StatusOK || body != api.OpenAPI() {
		t.Errorf("%d %.100s, want the document", status, body)
	}
	if status, body := w.rest(http.MethodGet, api.OpenAPIPath, ""); status != http.StatusUnauthorized {
		t.Errorf("%d %.100s to a stranger", status, body)
	}
	if status, body := w.rest(http.MethodGet, api.OpenAPIPath+"?x=1", "", signedIn...); status != http.StatusBadRequest {
		t.Errorf("an unknown parameter: %d %.100s", status, body)
	}
}

// Package openapitest holds answers of the API against its OpenAPI document.
package openapitest

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/refloat/refloat/internal/api"
)

// Document reads the document, which must be valid.
func Document(ctx context.Context) (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromData([]byte(api.OpenAPI()))
	if err != nil {
		return nil, err
	}
	return doc, doc.Validate(ctx)
}

// routes finds the operations of the document, whose messages have no other fields than those that it names.
var routes = sync.OnceValues(func() (routers.Router, error) {
	doc, err := Document(context.Background())
	if err != nil {
		return nil, err
	}
	open := false
	for _, message := range doc.Components.Schemas {
		if len(message.Value.Properties) > 0 {
			message.Value.AdditionalProperties.Has = &open
		}
	}
	return legacy.NewRouter(doc)
})

// Check reports an answer that does not conform.
func Check(t testing.TB, r *http.Request, status int, header http.Header, body string) {
	t.Helper()
	if err := Conforms(r, status, header, body); err != nil {
		t.Errorf("OpenAPI: %s %s: %d %s: %v", r.Method, r.URL, status, body, err)
	}
}

// Conforms holds an answer against the document: its type, and its fields, of which it may have no other than those
// named. An error to a request that the document does not have is as it may be.
func Conforms(r *http.Request, status int, header http.Header, body string) error {
	router, err := routes()
	if err != nil {
		return err
	}
	route, path, err := router.FindRoute(r)
	if err != nil {
		if status == http.StatusOK && r.URL.Path != api.OpenAPIPath {
			return fmt.Errorf("an answer to what is no request: %w", err)
		}
		return nil
	}
	answer := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, PathParams: path, Route: route},
		Status:                 status,
		Header:                 header,
		Options:                &openapi3filter.Options{IncludeResponseStatus: true},
	}
	return openapi3filter.ValidateResponse(r.Context(), answer.SetBodyBytes([]byte(body)))
}

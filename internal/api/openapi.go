package api

import (
	_ "embed"
	"io"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
)

//go:embed openapi.json
var openAPI string

// OpenAPI returns the OpenAPI document (3.1, JSON) of the REST routes of all services, also of those that a server leaves
// out. `make gen` writes it.
func OpenAPI() string { return openAPI }

// OpenAPIPath is where a server has the document.
const OpenAPIPath = "/refloat/v1/openapi.json"

// serveOpenAPI serves the document.
func serveOpenAPI(on *runtime.ServeMux) error {
	return on.HandlePath(http.MethodGet, OpenAPIPath, func(w http.ResponseWriter, _ *http.Request, _ map[string]string) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, openAPI) // the client may be gone
	})
}

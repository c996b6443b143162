package openapitest_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/refloat/refloat/internal/test/openapitest"
)

// TestConforms: what is not as the document says is an error.
func TestConforms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path   string
		status int
		body   string
		good   bool
	}{
		{"/refloat/v1/resources", 200, `{"generation": "18446744073709551615", "resources": [], "brakes": [{"queue": "q"}]}`, true},
		{"/refloat/v1/resources", 200, `{"generation": 1}`, false},
		{"/refloat/v1/resources", 200, `{"extra": 1}`, false},
		{"/refloat/v1/resources", 200, `{"brakes": [{"extra": 1}]}`, false},
		{"/refloat/v1/resources", 200, `{"brakes": [{"pausedUntil": null}]}`, false},
		{"/refloat/v1/resources", 200, `[]`, false},
		{"/refloat/v1/jobs/x", 404, `{"code": 5, "message": "x", "details": []}`, true},
		{"/refloat/v1/jobs/x", 404, `{"code": 5, "extra": 1}`, false},
		{"/v1/retry-policy/p", 200, `{"name": "p", "defaultAction": "Fail"}`, true},
		{"/v1/retry-policy/p", 200, `{"name": "p", "defaultAction": "RETRY_ACTION_FAIL"}`, false},
		{"/refloat/v1/nothing", 404, `not found`, true},
		{"/refloat/v1/nothing", 200, `{}`, false},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://localhost"+c.path, nil)
		err := openapitest.Conforms(r, c.status, http.Header{"Content-Type": {"application/json"}}, c.body)
		if (err == nil) != c.good {
			t.Errorf("%s: %d %s: %v, want good %v", c.path, c.status, c.body, err, c.good)
		}
	}
}

package app

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/api/pb"
)

// TestMissingDefaultMetric: the metric is 1 while the default policy is missing.
func TestMissingDefaultMetric(t *testing.T) {
	t.Parallel()
	m := NewMetrics(time.Now, 10)
	for _, tt := range []struct{ missing, want string }{{"", "0"}, {"infra", "1"}, {"", "0"}} {
		m.followed(&pb.Source{Address: "a:1", MissingDefault: tt.missing})
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
		if line := "refloat_follow_armada_default_missing{armada=\"a:1\"} " + tt.want + "\n"; !strings.Contains(w.Body.String(), line) {
			t.Errorf("missing %q: no %q", tt.missing, line)
		}
	}
}

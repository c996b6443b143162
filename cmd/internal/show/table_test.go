package show_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/refloat/refloat/cmd/internal/show"
)

// TestTableIsBounded: one long cell does not widen every row.
func TestTableIsBounded(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	table := show.NewTable(&out, "JOB", "QUEUE", "WHY")
	long := strings.Repeat("é", 70_000)
	table.Row(long, "ml", long)
	for range 1000 {
		table.Row("j", "ml", "ok")
	}
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	if out.Len() > 1000*200+2*len(long) || !strings.Contains(out.String(), "…") {
		t.Errorf("1000 rows and a long one take %d bytes", out.Len())
	}
}

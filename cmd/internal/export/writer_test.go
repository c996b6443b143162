package export_test

import (
	"bytes"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/refloat/refloat/cmd/internal/export"
)

// TestParquetSchema: the name of the schema is in the file, and stays whatever the rows are called here.
func TestParquetSchema(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	write, end := export.Parquet[export.Run](&out)
	if err := write(&export.Run{JobID: "j"}); err != nil {
		t.Fatal(err)
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	file, err := parquet.OpenFile(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if name := file.Schema().Name(); name != "exportedRun" {
		t.Errorf("the schema is called %q", name)
	}
}

// Command parquet prints a Parquet file as CSV, with Apache Arrow's reader: a second opinion
// on what refloatctl export writes.
package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"os"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "parquet FILE")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(name string) error {
	in, err := file.OpenParquetFile(name, false)
	if err != nil {
		return err
	}
	defer in.Close()
	reader, err := pqarrow.NewFileReader(in, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	if err != nil {
		return err
	}
	table, err := reader.ReadTable(context.Background())
	if err != nil {
		return err
	}
	defer table.Release()
	out := csv.NewWriter(os.Stdout)
	var head []string
	for _, f := range table.Schema().Fields() {
		head = append(head, f.Name)
	}
	if err := out.Write(head); err != nil {
		return err
	}
	rows := array.NewTableReader(table, 0)
	defer rows.Release()
	for rows.Next() {
		batch := rows.RecordBatch()
		for i := range int(batch.NumRows()) {
			var cells []string
			for _, column := range batch.Columns() {
				cells = append(cells, cell(column, i))
			}
			if err := out.Write(cells); err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}

// cell is a value as refloatctl export writes it as CSV.
func cell(column arrow.Array, i int) string {
	if column.IsNull(i) {
		return ""
	}
	if times, ok := column.(*array.Timestamp); ok {
		return times.Value(i).ToTime(times.DataType().(*arrow.TimestampType).Unit).UTC().Format("2006-01-02T15:04:05.999999999Z07:00")
	}
	return column.ValueStr(i)
}

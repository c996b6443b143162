package main

import (
	"bytes"
	"encoding/csv"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refloat/refloat/cmd/internal/export"
)

// TestExport: a Parquet file, read by Apache Arrow, has what the CSV form has, which has the
// rows of the list.
func TestExport(t *testing.T) {
	t.Parallel()
	data, dir := drainedData(t), t.TempDir()
	reader := filepath.Join(dir, "parquet")
	build := exec.Command("go", "-C", "../../internal/tools", "build", "-o", reader, "./parquet")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, list := range []string{"decisions", "runs", "jobs"} {
		text := ctl(t, "export", list, "--data", data).exits(t, exitFine).out
		rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		if names := strings.Count(ctl(t, "get", list, "--data", data, "-o", "name").out, "\n"); names == 0 || len(rows) != names+1 {
			t.Errorf("%s: %d lines for %d rows and a heading", list, len(rows), names)
		}
		file := filepath.Join(dir, list+".parquet")
		ctl(t, "export", list, "--data", data, "--out", file).exits(t, exitFine)
		read, err := exec.Command(reader, file).Output()
		if err != nil {
			t.Fatal(err)
		}
		if string(read) != text {
			t.Errorf("%s as Parquet: %s", list, firstDifference(text, string(read)))
		}
		ctl(t, "export", list, "--data", data, "--out", file).exits(t, exitEnvironment) // it exists
	}
	some := ctl(t, "export", "decisions", "--data", data, "--queue", "genomics", "--limit", "3").exits(t, exitFine).out
	if strings.Count(some, ",genomics,") != 3 || strings.Count(some, "\n") != 4 {
		t.Errorf("three decisions of a queue: %s", some)
	}
}

// TestFormulas: a spreadsheet does not take a text that users chose for a formula, unless it is asked to.
func TestFormulas(t *testing.T) {
	t.Parallel()
	row := export.Run{Node: `=HYPERLINK("http://x","y")`, Pool: "+1", Executor: "-1", Category: "@SUM(1)", Message: "\t=1", Error: "\r=1", Subcategory: "a=1", Partition: -1}
	for raw, want := range map[bool][]string{
		false: {`'=HYPERLINK("http://x","y")`, "'+1", "'-1", "'@SUM(1)", "'\t=1", "'\r=1", "a=1", "-1"},
		true:  {`=HYPERLINK("http://x","y")`, "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "a=1", "-1"},
	} {
		var out bytes.Buffer
		write, end := export.CSV[export.Run](&out, raw)
		if err := errors.Join(write(&row), end()); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(&out).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for i, name := range rows[0] {
			got[name] = rows[1][i]
		}
		for i, name := range []string{"node", "pool", "executor", "category", "message", "error", "subcategory", "partition"} {
			if got[name] != want[i] {
				t.Errorf("raw %v: %s is %q, want %q", raw, name, got[name], want[i])
			}
		}
	}
	ctl(t, "export", "runs", "--data", t.TempDir(), "--format", "parquet", "--csv-raw").exits(t, exitUsage)
}

// TestExportLeavesNothing: an export that fails leaves no file.
func TestExportLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "jobs.parquet")
	ctl(t, "export", "jobs", "--data", dir, "--out", file).exits(t, exitEnvironment)
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("there is a file: %v", err)
	}
	ctl(t, "export", "jobs", "--data", dir, "--format", "xml").exits(t, exitUsage)
	ctl(t, "export", "jobs", "--data", dir, "--watch").exits(t, exitUsage)
}

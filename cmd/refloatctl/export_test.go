package main

import (
	"encoding/csv"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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

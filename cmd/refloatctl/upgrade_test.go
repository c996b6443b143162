package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/test/pgtest"
)

var olderData = filepath.Join("..", "..", "testdata", "upgrade")

// zipped is the content of a file of an older version.
func zipped(t *testing.T, name string) io.Reader {
	t.Helper()
	file, err := os.Open(filepath.Join(olderData, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	content, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// olderDirectory is a copy of the data directory that an older version wrote.
func olderDirectory(t *testing.T) string {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	for archive := tar.NewReader(zipped(t, "directory.tar.gz")); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return data
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, data, h.Name, string(content))
	}
}

// olderJobs is a PostgreSQL with the job database that an older version wrote.
func olderJobs(t *testing.T) (url string) {
	t.Helper()
	url = pgtest.Database(t)
	dump, err := io.ReadAll(zipped(t, "jobs.sql.gz"))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.PgConn().Exec(t.Context(), string(dump)).ReadAll(); err != nil {
		t.Fatal(err)
	}
	return url
}

// TestOlderData: what an older version wrote verifies, and is continued to the same decisions as by that version, once its job
// database is migrated.
func TestOlderData(t *testing.T) {
	t.Parallel()
	expected, err := os.ReadFile(filepath.Join(olderData, "running.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for name, jobs := range map[string]func(data string) []string{
		"SQLite":     func(string) []string { return nil },
		"PostgreSQL": func(string) []string { return []string{"--job-db", olderJobs(t)} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := olderDirectory(t)
			more := jobs(data)
			inProcess(t, "verify", "--data", data).exits(t, exitFine).prints(t, "verified: deciding 315 messages again")
			inProcess(t, append([]string{"jobdb", "verify", "--data", data}, more...)...).exits(t, exitEnvironment).prints(t, "has an older schema")
			inProcess(t, append([]string{"up", "--data", data, "--feed", recordingFile("chaos"), "--exit-when-drained", "--quiet"}, more...)...).exits(t, exitFine)
			verified := inProcess(t, "verify", "--data", data).exits(t, exitFine).prints(t, "verified: deciding 630 messages again").out
			var running []string
			for _, hash := range regexp.MustCompile(`running hash (\w+)`).FindAllStringSubmatch(verified, -1) {
				running = append(running, hash[1])
			}
			if want := strings.Fields(string(expected)); !slices.Equal(running, want) {
				t.Errorf("running hashes %v, the older version had %v", running, want)
			}
			inProcess(t, append([]string{"jobdb", "verify", "--data", data}, more...)...).exits(t, exitFine)
		})
	}
}

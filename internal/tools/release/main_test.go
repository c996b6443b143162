package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPack: an archive depends on names, contents and modes only, and a program stays executable.
func TestPack(t *testing.T) {
	t.Parallel()
	when := time.Unix(1_700_000_000, 0).UTC()
	var packed [2][]byte
	for i := range packed {
		dir := t.TempDir()
		program, text := filepath.Join(dir, "program"), filepath.Join(dir, "LICENSE")
		written := when.Add(time.Duration(i) * time.Hour)
		err := errors.Join(
			os.WriteFile(program, []byte("run"), 0o755), os.WriteFile(text, []byte("text"), 0o600),
			os.Chtimes(program, written, written),
			pack(filepath.Join(dir, "x.tar.gz"), "top", when, []string{program, text}),
		)
		if err != nil {
			t.Fatal(err)
		}
		if packed[i], err = os.ReadFile(filepath.Join(dir, "x.tar.gz")); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(packed[0], packed[1]) {
		t.Error("the same files give two archives")
	}
	zipped, err := gzip.NewReader(bytes.NewReader(packed[0]))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{"top/program": 0o755, "top/LICENSE": 0o644}
	for archive := tar.NewReader(zipped); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || want[h.Name] != h.Mode || !h.ModTime.Equal(when) {
			t.Fatalf("%+v, %v; want %v", h, err, want)
		}
		delete(want, h.Name)
	}
	if len(want) > 0 {
		t.Errorf("not packed: %v", want)
	}
}

func TestLicences(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]string{
		`[{"name":"a","evidence":{"licenses":[{"license":{"id":"MIT"}}]}},{"name":"std"}]`:          "",
		`[{"name":"a","version":"v1","evidence":{"licenses":[{"license":{"id":"GPL-3.0-only"}}]}}]`: "a v1: GPL-3.0-only",
		`[{"name":"b","version":"v2"}]`: "b v2: unknown",
		`[]`:                            "no module found",
	} {
		var all []component
		if err := json.Unmarshal([]byte(document), &all); err != nil {
			t.Fatal(err)
		}
		err := judge(all)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("judge(%s) = %v, want %q", document, err, want)
		}
	}
}

package checkpoint_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/checkpoint"
)

func TestOpenDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "not", "there yet")
	b, err := checkpoint.Open(t.Context(), "file://"+strings.ReplaceAll(dir, " ", "%20"))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.WriteAll(t.Context(), "a/b", []byte("x"), nil); err != nil {
		t.Fatal(err)
	}
	// One file, next to where it belongs, and no attributes.
	files, err := os.ReadDir(filepath.Join(dir, "a"))
	if len(files) != 1 || files[0].Name() != "b" || err != nil {
		t.Errorf("the directory holds %v, %v", files, err)
	}
}

// TestOpenRefuses: an error names the URL without what may be secret, and the fix.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(tempDir(t), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, url, want string }{
		{"two slashes", "file://data/checkpoints", "write file:///data/checkpoints with three slashes"},
		{"no directory", "file:///", "no directory: write file:///dir"},
		{"a file", "file://" + file, "is not a directory"},
		{"unknown scheme", "gs://bucket", `scheme "gs" is not known: write file:///dir or s3://bucket/prefix`},
		{"a path", "/data", `scheme "" is not known`},
		{"no bucket", "s3:///prefix", "no bucket: write s3://bucket"},
		{"credentials", "s3://HUSH:HUSH@bucket?region=x", "set AWS_ACCESS_KEY_ID"},
		{"unreadable", "s3://HUSH:HU/SH@bucket", "the URL cannot be read: write file:///dir or s3://bucket"},
		{"unknown parameter", "s3://bucket?region=eu-central-1&token=HUSH-HUSH", "s3://bucket?region=…&token=…"},
		{"bad value", "s3://bucket?region=eu-central-1&use_path_style=HUSH-HUSH", "use_path_style"},
		{
			"nobody listens", "s3://bucket/a/b?region=eu-central-1&use_path_style=true&anonymous=true&endpoint=http://127.0.0.1:1/HUSH",
			"list checkpoint storage s3://bucket/a/b?anonymous=…&endpoint=…&region=…&use_path_style=…",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b, err := checkpoint.Open(t.Context(), tt.url)
			if err == nil {
				b.Close()
				t.Fatal("Open = nil")
			}
			if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "HUSH") {
				t.Errorf("Open = %v, want %q in it and no secret", err, tt.want)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	b := newStorage(newClock().now).bucket()
	for _, prefix := range []string{"..", "../a", "a//b", "a/./b", "a/../b"} {
		_, err := checkpoint.New(checkpoint.Config{Bucket: b, Prefix: prefix, Scratch: "x", Now: newClock().now})
		if err == nil || !strings.Contains(err.Error(), "prefix") {
			t.Errorf("New with prefix %q = %v", prefix, err)
		}
	}
	if _, err := checkpoint.New(checkpoint.Config{Bucket: b, Now: newClock().now}); err == nil {
		t.Error("New without Scratch = nil")
	}
}

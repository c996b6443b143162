package storage_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/checkpoint/storage"
)

func TestOpenDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "not", "there yet")
	b, err := storage.Open(t.Context(), "file://"+strings.ReplaceAll(dir, " ", "%20"), environment(nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Write(t.Context(), "a/b", strings.NewReader("x"), 1); err != nil {
		t.Fatal(err)
	}
	// One file in its place, without attributes.
	files, err := os.ReadDir(filepath.Join(dir, "a"))
	if len(files) != 1 || files[0].Name() != "b" || err != nil {
		t.Errorf("the directory holds %v, %v", files, err)
	}
}

// TestOpenRefuses: an error has the URL without secrets, and the fix.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, url, want string }{
		{"two slashes", "file://data/checkpoints", "use three slashes, file:///data/checkpoints"},
		{"no directory", "file:///", "no directory in the URL: use file:///dir"},
		{"a file", "file://" + file, "is not a directory"},
		{"unknown scheme", "gs://bucket", `unknown scheme "gs": use file:///dir or s3://bucket/prefix`},
		{"a path", "/data", `unknown scheme ""`},
		{"no bucket", "s3:///prefix", "no bucket in the URL: use s3://bucket"},
		{"credentials", "s3://HUSH:HUSH@bucket?region=x", "set AWS_ACCESS_KEY_ID"},
		{"unreadable", "s3://HUSH:HU/SH@bucket", "invalid URL: use file:///dir or s3://bucket"},
		{"unknown parameter", "s3://bucket?region=eu-central-1&token=HUSH-HUSH", "s3://bucket?region=…&token=…"},
		{"endpoint with a path", "s3://bucket?endpoint=http://127.0.0.1:1/HUSH-HUSH", "the endpoint must not have a path"},
		{"endpoint without a scheme", "s3://bucket?endpoint=127.0.0.1:1", "use http://host:port"},
		{"fips", "s3://bucket?region=eu-central-1&fips=true", "use endpoint=https://s3-fips.REGION.amazonaws.com"},
		{"role", "s3://bucket?region=eu-central-1&role=HUSH-HUSH", "role is not an ARN"},
		{"encryption", "s3://bucket?ssetype=aws:kms:dsse", "use AES256 or aws:kms"},
		{"key alone", "s3://bucket?kmskeyid=HUSH-HUSH", "add ssetype=aws:kms"},
		{"single key", "s3://bucket?key=HUSH-HUSH", `unknown parameter "key"`},
		{"prefix that leads out", "file:///tmp/x?prefix=../y", "use names between single slashes"},
		{"signed URLs", "file:///tmp/x?base_url=/show&secret_key_path=y", "for a directory: remove it"},
		{"bad mode", "file:///tmp/x?dir_file_mode=rwx", "dir_file_mode=0750"},
		{"bad value", "s3://bucket?region=eu-central-1&use_path_style=HUSH-HUSH", "use_path_style"},
		{
			"nobody listens", "s3://bucket/a/b?region=eu-central-1&use_path_style=true&anonymous=true&endpoint=http://127.0.0.1:1&kmskeyid=HUSH-HUSH&ssetype=aws:kms",
			"list checkpoint storage s3://bucket/a/b?anonymous=…&endpoint=…&kmskeyid=…&region=…&ssetype=…&use_path_style=…",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := storage.Open(t.Context(), tt.url, environment(nil))
			if err == nil {
				t.Fatal("Open = nil")
			}
			if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "HUSH") {
				t.Errorf("Open = %v, want %q in it and no secret", err, tt.want)
			}
		})
	}
}

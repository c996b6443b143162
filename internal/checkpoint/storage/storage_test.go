package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/internal/checkpoint"
	"github.com/refloat/refloat/internal/checkpoint/storage"
	"github.com/refloat/refloat/internal/test/s3test"
)

// environment returns an environment with only these variables.
func environment(variables map[string]string) storage.Environment {
	return storage.Environment{Getenv: func(name string) string { return variables[name] }, Now: time.Now}
}

// s3Server starts an S3 server with an empty bucket; it calls see with each request.
func s3Server(t *testing.T, see func(*http.Request)) (url string) {
	t.Helper()
	handler := s3test.New(time.Now)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		see(r)
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func open(t *testing.T, url string) checkpoint.Storage {
	t.Helper()
	s, err := storage.Open(t.Context(), url, environment(nil))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func keys(t *testing.T, s checkpoint.Storage, prefix string) []string {
	t.Helper()
	all, err := s.List(t.Context(), prefix)
	if err != nil {
		t.Fatalf("List(%q): %v", prefix, err)
	}
	found := []string{}
	for _, o := range all {
		found = append(found, fmt.Sprintf("%s %d", o.Key, o.Size))
		if time.Since(o.Modified).Abs() > time.Hour {
			t.Errorf("%s was modified at %v", o.Key, o.Modified)
		}
	}
	slices.Sort(found)
	return found
}

// TestStorage tests every storage against the contract of checkpoint.Storage.
func TestStorage(t *testing.T) {
	t.Parallel()
	s3 := s3Server(t, func(*http.Request) {})
	s3Prefix := s3Server(t, func(*http.Request) {}) // without a prefix, a listing is of the whole bucket
	dir := t.TempDir()
	for name, url := range map[string]string{
		"memory":                "mem://",
		"memory with prefix":    "mem://?prefix=a/b",
		"directory":             "file://" + dir + "/plain",
		"directory with prefix": "file://" + dir + "/below?prefix=a/b&dir_file_mode=0750",
		"S3":                    "s3://bucket?anonymous=true&endpoint=" + s3,
		"S3 with prefix":        "s3://bucket/x/y?prefix=z-&anonymous=true&request_checksum_calculation=when_required&endpoint=" + s3Prefix,
	} {
		t.Run(name, func(t *testing.T) { contract(t, open(t, url)) })
	}
}

func contract(t *testing.T, s checkpoint.Storage) {
	ctx := t.Context()
	write := func(key, content string) {
		t.Helper()
		if err := s.Write(ctx, key, strings.NewReader(content), int64(len(content))); err != nil {
			t.Fatalf("Write(%s): %v", key, err)
		}
	}
	list := func(prefix string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(append([]string{}, want...), keys(t, s, prefix)); diff != "" {
			t.Errorf("List(%q) differs (-want +got):\n%s", prefix, diff)
		}
	}
	list("3/files/")
	write("3/files/one", "first")
	write("3/files/two", "")
	write("3/manifests/one", "other")
	write("3/files/one", "and again")
	list("3/files/", "3/files/one 9", "3/files/two 0")
	list("3/files/t", "3/files/two 0")
	list("", "3/files/one 9", "3/files/two 0", "3/manifests/one 5")

	r, err := s.Read(ctx, "3/files/one")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); string(got) != "and again" || err != nil {
		t.Errorf("Read = %q, %v", got, err)
	}
	if _, err := s.Read(ctx, "3/files/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Read of nothing = %v, want fs.ErrNotExist", err)
	}
	for range 2 {
		if err := s.Delete(ctx, "3/files/two"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Delete = %v", err)
		}
	}

	// A failed operation leaves the old content.
	if err := s.Write(ctx, "3/files/one", bytes.NewReader([]byte("short")), 6); err == nil {
		t.Error("Write of too few bytes = nil")
	}
	ended, end := context.WithCancel(ctx)
	end()
	if err := s.Write(ended, "3/files/one", strings.NewReader("late"), 4); !errors.Is(err, context.Canceled) {
		t.Errorf("Write after the end = %v", err)
	}
	list("3/files/", "3/files/one 9")
}

// TestDirectoryIsLeftTidy: a failed write leaves no temporary file, and no key leads
// out of the directory.
func TestDirectoryIsLeftTidy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, "file://"+dir+"/root")
	if err := s.Write(t.Context(), "a/b", strings.NewReader("x"), 2); err == nil {
		t.Error("Write of too few bytes = nil")
	}
	if left, err := os.ReadDir(filepath.Join(dir, "root", "a")); len(left) > 0 || err != nil {
		t.Errorf("%v is left, %v", left, err)
	}
	for _, key := range []string{"../x", "a/../../x", "/x", "a//b", ""} {
		if err := s.Write(t.Context(), key, strings.NewReader("x"), 1); err == nil {
			t.Errorf("Write(%q) = nil", key)
		}
	}
}

// TestS3Requests: the server sees what the URL's parameters and the environment
// request.
func TestS3Requests(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "from-environment")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "HUSH")
	t.Setenv("AWS_SESSION_TOKEN", "session")
	profiles := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(profiles, []byte("[other]\naws_access_key_id = from-profile\naws_secret_access_key = HUSH\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", profiles)
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	tests := []struct {
		name, url   string
		environment map[string]string
		want        map[string]string // headers, by what they contain
	}{
		{"environment", "s3://bucket?region=eu-central-1", nil, map[string]string{
			"Authorization": "Credential=from-environment/", "X-Amz-Security-Token": "session",
		}},
		{"region", "s3://bucket?region=eu-central-1", nil, map[string]string{"Authorization": "/eu-central-1/s3/"}},
		{"region of the environment", "s3://bucket", map[string]string{"AWS_REGION": "eu-north-1"}, map[string]string{"Authorization": "/eu-north-1/s3/"}},
		{"profile", "s3://bucket?profile=other", nil, map[string]string{"Authorization": "Credential=from-profile/"}},
		{"profile of the environment", "s3://bucket", map[string]string{"AWS_PROFILE": "other"}, map[string]string{"Authorization": "Credential=from-profile/"}},
		{"anonymous", "s3://bucket?anonymous=true", nil, map[string]string{"Authorization": ""}},
		{"encryption", "s3://bucket?ssetype=AES256", nil, map[string]string{"X-Amz-Server-Side-Encryption": "AES256"}},
		{"encryption with a key", "s3://bucket?ssetype=aws:kms&kmskeyid=key", nil, map[string]string{
			"X-Amz-Server-Side-Encryption": "aws:kms", "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": "key",
		}},
		{"of the AWS SDK alone", "s3://bucket?awssdk=v2&hostname_immutable=true&rate_limiter_capacity=9&response_checksum_validation=when_required", nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var put http.Header
			server := s3Server(t, func(r *http.Request) {
				if r.Method == http.MethodPut {
					put = r.Header.Clone()
				}
			})
			variables := map[string]string{"AWS_ENDPOINT_URL_S3": server}
			maps.Copy(variables, tt.environment)
			s, err := storage.Open(t.Context(), tt.url, environment(variables))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Write(t.Context(), "key", strings.NewReader("x"), 1); err != nil {
				t.Fatal(err)
			}
			for name, want := range tt.want {
				if got := put.Get(name); !strings.Contains(got, want) || want == "" && got != "" {
					t.Errorf("%s is %q, want %q in it", name, got, want)
				}
			}
		})
	}
}

// TestS3Refuses: without credentials, with wrong ones and without a bucket, Open
// explains the error, and does not continue without credentials.
func TestS3Refuses(t *testing.T) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	requests := 0
	server := s3Server(t, func(*http.Request) { requests++ })
	tests := []struct{ name, url, want string }{
		{"no such profile", "s3://bucket?profile=other&endpoint=" + server, "no S3 credentials: profile"},
		{"no such bucket", "s3://another?anonymous=true&endpoint=" + server, "bucket does not exist"},
	}
	for i, tt := range tests {
		_, err := storage.Open(t.Context(), tt.url, environment(nil))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Open = %v, want %q in it", tt.name, err, tt.want)
		}
		if i == 0 && requests > 0 {
			t.Errorf("%s: %d requests were sent", tt.name, requests)
		}
	}
}

// TestS3Signed: without TLS each chunk of an upload is signed; the content arrives
// unchanged, in one piece and in parts.
func TestS3Signed(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "HUSH")
	s := open(t, "s3://bucket?endpoint="+s3Server(t, func(*http.Request) {}))
	for _, size := range []int{0, 1, 200_000, 20 << 20} {
		sent := bytes.Repeat([]byte("sent."), size/5+1)[:size]
		if err := s.Write(t.Context(), "key", bytes.NewReader(sent), int64(size)); err != nil {
			t.Fatal(err)
		}
		r, err := s.Read(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil || !bytes.Equal(sent, got) {
			t.Errorf("of %d bytes %d arrived, or others, %v", size, len(got), err)
		}
	}
}

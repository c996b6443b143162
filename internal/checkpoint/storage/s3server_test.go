package storage_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/refloat/refloat/internal/checkpoint"
	"github.com/refloat/refloat/internal/checkpoint/storage"
)

// gateway is a real S3 server, a child process on a directory. It checks signatures, permissions and clocks.
type gateway struct {
	t       *testing.T
	program string
	url     string
	client  *minio.Client // as root
}

const rootKey, rootSecret = "root", "secret-of-root"

// startGateway builds the server from its own module and starts it.
func startGateway(t *testing.T) *gateway {
	t.Helper()
	if os.Getenv("SECURE") == "" {
		t.Skip("runs with SECURE=1")
	}
	g := &gateway{t: t, program: filepath.Join(t.TempDir(), "versitygw")}
	build := exec.Command("go", "-C", "../../tools/s3server", "build", "-o", g.program, "github.com/versity/versitygw/cmd/versitygw")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the S3 server: %v\n%s", err, out)
	}
	data, versions, users := t.TempDir(), t.TempDir(), t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(g.program, "--port", address, "--access", rootKey, "--secret", rootSecret, "--region", "us-east-1", "--iam-dir", users,
		"posix", "--versioning-dir", versions, data)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the S3 server printed\n%s", out.String()[max(0, out.Len()-3000):])
		}
	})
	g.url = "http://" + address
	if g.client, err = minio.New(address, &minio.Options{Creds: credentials.NewStaticV4(rootKey, rootSecret, ""), Region: "us-east-1"}); err != nil {
		t.Fatal(err)
	}
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for until := time.Now().Add(time.Minute); ; <-again.C {
		if err = g.client.MakeBucket(t.Context(), "bucket", minio.MakeBucketOptions{}); err == nil {
			return g
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
}

// user creates a user.
func (g *gateway) user(name string) {
	g.t.Helper()
	cmd := exec.Command(g.program, "admin", "--access", rootKey, "--secret", rootSecret, "--endpoint-url", g.url,
		"create-user", "--access", name, "--secret", "secret-of-"+name, "--role", "user")
	if out, err := cmd.CombinedOutput(); err != nil {
		g.t.Fatalf("create user %s: %v\n%s", name, err, out)
	}
}

// allow lets a user do these things with the bucket.
func (g *gateway) allow(name string, actions []string) {
	g.t.Helper()
	policy, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": []any{map[string]any{
		"Effect": "Allow", "Principal": map[string]any{"AWS": []string{name}}, "Action": actions,
		"Resource": []string{"arn:aws:s3:::bucket", "arn:aws:s3:::bucket/*"},
	}}})
	if err != nil {
		g.t.Fatal(err)
	}
	if err := g.client.SetBucketPolicy(g.t.Context(), "bucket", string(policy)); err != nil {
		g.t.Fatal(err)
	}
}

// as sets the credentials of all that is opened from now on.
func (g *gateway) as(key, secret string) {
	g.t.Setenv("AWS_ACCESS_KEY_ID", key)
	g.t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
}

// faults is a proxy before the server, which meddles with some requests.
func (g *gateway) faults(meddle func(w http.ResponseWriter, r *http.Request) (answered bool)) (at string) {
	target, err := url.Parse(g.url)
	if err != nil {
		g.t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // it is signed
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !meddle(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	g.t.Cleanup(server.Close)
	return server.URL
}

func s3Error(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, message)
}

// permissions are those that docs/operate.md lists.
func permissions(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "operate.md"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for word := range strings.SplitSeq(strings.ReplaceAll(string(text), "`", " "), " ") {
		if strings.HasPrefix(word, "s3:") && strings.Trim(word, "s3:") != "" && !strings.Contains(word, "//") {
			all = append(all, strings.Trim(word, ",."))
		}
	}
	if len(all) < 4 {
		t.Fatalf("docs/operate.md lists %v", all)
	}
	return all
}

// TestS3Server: what checkpoints do in a bucket, on a real server.
func TestS3Server(t *testing.T) {
	g := startGateway(t)
	at := func(server string) string { return "s3://bucket/of/ours?endpoint=" + server }
	g.user("refloat")
	g.user("poor")
	g.allow("refloat", permissions(t))
	big := bytes.Repeat([]byte("0123456789abcdef"), 20<<20/16)

	g.as("refloat", "secret-of-refloat")
	t.Run("contract", func(t *testing.T) { contract(t, open(t, at(g.url))) })
	t.Run("refused", func(t *testing.T) {
		for _, tt := range []struct{ key, secret, want string }{
			{"poor", "secret-of-poor", "allow s3:ListBucket"},
			{"refloat", "another", "check the credentials"},
			{"nobody", "any", "check the credentials"},
		} {
			t.Setenv("AWS_ACCESS_KEY_ID", tt.key)
			t.Setenv("AWS_SECRET_ACCESS_KEY", tt.secret)
			_, err := storage.Open(t.Context(), at(g.url), environment(nil))
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), tt.secret) {
				t.Errorf("as %s: %v, want %q in it", tt.key, err, tt.want)
			}
			t.Log(err)
		}
	})
	t.Run("throttled", func(t *testing.T) {
		var left atomic.Int32
		s := open(t, at(g.faults(func(w http.ResponseWriter, r *http.Request) bool {
			if left.Add(-1) < 0 {
				return false
			}
			s3Error(w, http.StatusServiceUnavailable, "SlowDown", "Please reduce your request rate.")
			return true
		})))
		left.Store(3)
		if err := s.Write(t.Context(), "slow", bytes.NewReader(big), int64(len(big))); err != nil {
			t.Errorf("three requests were refused: %v", err)
		}
		same(t, s, "slow", big)
		left.Store(1 << 30)
		err := s.Write(t.Context(), "slower", strings.NewReader("x"), 1)
		if err == nil || !strings.Contains(err.Error(), "take checkpoints less often") {
			t.Errorf("all are refused: %v", err)
		}
		t.Log(err)
	})
	t.Run("wrong clock", func(t *testing.T) {
		late := g.lateAnswer()
		_, err := storage.Open(t.Context(), at(g.faults(func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write(late)
			return true
		})), environment(nil))
		if err == nil || !strings.Contains(err.Error(), "set the clock") {
			t.Errorf("%v, want a word about the clock; the server says %s", err, late)
		}
		t.Log(err)
	})
	t.Run("partial upload", func(t *testing.T) {
		var cut atomic.Int32
		s := open(t, at(g.faults(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPut || cut.Add(-1) < 0 {
				return false
			}
			_, _ = io.CopyN(io.Discard, r.Body, 1<<20) // and then the connection is lost
			panic(http.ErrAbortHandler)
		})))
		cut.Store(2)
		if err := s.Write(t.Context(), "cut", bytes.NewReader(big), int64(len(big))); err != nil {
			t.Errorf("two parts were cut: %v", err)
		}
		same(t, s, "cut", big)
		cut.Store(1 << 30)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := s.Write(ctx, "never", bytes.NewReader(big), int64(len(big))); err == nil {
			t.Error("every part was cut, and the upload succeeded")
		}
		if _, err := s.Read(t.Context(), "never"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Read of an incomplete upload: %v", err)
		}
	})
	t.Run("encrypted", func(t *testing.T) {
		// This server does not know encryption, so the proxy demands it, as a bucket policy does.
		demanding := at(g.faults(func(w http.ResponseWriter, r *http.Request) bool {
			creates := r.Method == http.MethodPut && !r.URL.Query().Has("partNumber") || r.Method == http.MethodPost && r.URL.Query().Has("uploads")
			if !creates || r.Header.Get("X-Amz-Server-Side-Encryption") == "AES256" {
				return false
			}
			s3Error(w, http.StatusForbidden, "AccessDenied", "Access Denied.")
			return true
		}))
		if err := open(t, demanding).Write(t.Context(), "plain", strings.NewReader("x"), 1); err == nil || !strings.Contains(err.Error(), "s3:PutObject") {
			t.Errorf("a bucket that demands encryption: %v", err)
		}
		s := open(t, demanding+"&ssetype=AES256")
		for name, content := range map[string][]byte{"small": []byte("x"), "large": big} {
			if err := s.Write(t.Context(), name, bytes.NewReader(content), int64(len(content))); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			same(t, s, name, content)
		}
	})
	t.Run("versioned", func(t *testing.T) {
		if err := g.client.EnableVersioning(t.Context(), "bucket"); err != nil {
			t.Fatal(err)
		}
		s := open(t, at(g.url))
		for _, content := range []string{"first", "second"} {
			if err := s.Write(t.Context(), "versions/one", strings.NewReader(content), int64(len(content))); err != nil {
				t.Fatal(err)
			}
		}
		same(t, s, "versions/one", []byte("second"))
		if err := s.Delete(t.Context(), "versions/one"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Read(t.Context(), "versions/one"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Read of what was deleted: %v", err)
		}
		if left := keys(t, s, "versions/"); len(left) != 0 {
			t.Errorf("%v are listed", left)
		}
	})
}

// lateAnswer is what the server says to a request that was signed yesterday, as by a machine with a wrong clock.
func (g *gateway) lateAnswer() []byte {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, g.url+"/bucket", nil)
	if err != nil {
		g.t.Fatal(err)
	}
	signedAt(r, "refloat", "secret-of-refloat", "us-east-1", time.Now().Add(-24*time.Hour))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusForbidden {
		g.t.Fatalf("a request of yesterday: %s, %v\n%s", resp.Status, err, text)
	}
	return text
}

func same(t *testing.T, s checkpoint.Storage, key string, want []byte) {
	t.Helper()
	r, err := s.Read(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes, want %d, %v", key, len(got), len(want), err)
	}
}

// signedAt signs a request without a body as of a time, which our client cannot do.
func signedAt(r *http.Request, key, secret, region string, at time.Time) {
	const none = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // SHA-256 of nothing
	day, second := at.UTC().Format("20060102"), at.UTC().Format("20060102T150405Z")
	r.Header.Set("X-Amz-Date", second)
	r.Header.Set("X-Amz-Content-Sha256", none)
	const signed = "host;x-amz-content-sha256;x-amz-date"
	canonical := strings.Join([]string{
		r.Method, r.URL.Path, "", "host:" + r.URL.Host, "x-amz-content-sha256:" + none, "x-amz-date:" + second, "", signed, none,
	}, "\n")
	sum := sha256.Sum256([]byte(canonical))
	scope := day + "/" + region + "/s3/aws4_request"
	mac := []byte("AWS4" + secret)
	for _, part := range []string{day, region, "s3", "aws4_request", "AWS4-HMAC-SHA256\n" + second + "\n" + scope + "\n" + hex.EncodeToString(sum[:])} {
		h := hmac.New(sha256.New, mac)
		h.Write([]byte(part))
		mac = h.Sum(nil)
	}
	r.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%x", key, scope, signed, mac))
}

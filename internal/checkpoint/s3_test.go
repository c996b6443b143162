package checkpoint_test

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/internal/checkpoint"
)

// fakeS3 answers as much of S3 as the driver asks: objects in parts and whole,
// and listings by page. It does not look at signatures.
type fakeS3 struct {
	mu      sync.Mutex
	objects map[string][]byte
	parts   map[string]map[int][]byte
	uploads int
}

type listResult struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	IsTruncated           bool
	NextContinuationToken string `xml:",omitempty"`
	Contents              []listed
}

type listed struct {
	Key          string
	Size         int
	LastModified string
	ETag         string
}

func (f *fakeS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	q := r.URL.Query()
	key := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/bucket"), "/")
	switch {
	case r.Method == http.MethodGet && key == "":
		f.list(w, q.Get("prefix"), q.Get("continuation-token"), q.Get("max-keys"))
	case r.Method == http.MethodPost && q.Has("uploads"):
		f.uploads++
		id := strconv.Itoa(f.uploads)
		f.parts[id] = map[int][]byte{}
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", id)
	case r.Method == http.MethodPut && q.Has("uploadId"):
		n, _ := strconv.Atoi(q.Get("partNumber"))
		f.parts[q.Get("uploadId")][n] = body
		w.Header().Set("ETag", `"part"`)
	case r.Method == http.MethodPost && q.Has("uploadId"):
		parts := f.parts[q.Get("uploadId")]
		f.objects[key] = nil
		for _, n := range slices.Sorted(maps.Keys(parts)) {
			f.objects[key] = append(f.objects[key], parts[n]...)
		}
		fmt.Fprint(w, "<CompleteMultipartUploadResult><ETag>\"whole-2\"</ETag></CompleteMultipartUploadResult>")
	case r.Method == http.MethodPut:
		f.objects[key] = body
		w.Header().Set("ETag", `"single"`)
	case r.Method == http.MethodDelete:
		delete(f.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case f.objects[key] == nil:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, "<Error><Code>NoSuchKey</Code></Error>")
	default:
		w.Header().Set("Last-Modified", "Fri, 02 Jan 2026 03:04:05 GMT")
		w.Header().Set("Content-Length", strconv.Itoa(len(f.objects[key])))
		if r.Method == http.MethodGet {
			_, _ = w.Write(f.objects[key])
		}
	}
}

func (f *fakeS3) list(w http.ResponseWriter, prefix, after, most string) {
	n, _ := strconv.Atoi(cmp.Or(most, "1000"))
	var l listResult
	for _, key := range slices.Sorted(maps.Keys(f.objects)) {
		if !strings.HasPrefix(key, prefix) || key <= after {
			continue
		}
		if len(l.Contents) == min(n, 3) {
			l.IsTruncated, l.NextContinuationToken = true, l.Contents[len(l.Contents)-1].Key
			break
		}
		l.Contents = append(l.Contents, listed{key, len(f.objects[key]), "2026-01-02T03:04:05Z", `"x"`})
	}
	_ = xml.NewEncoder(w).Encode(l)
}

// readBody undoes the chunks in which the client sends what it signs as it goes.
func readBody(r *http.Request) ([]byte, error) {
	b, err := io.ReadAll(r.Body)
	if err != nil || !strings.Contains(r.Header.Get("Content-Encoding"), "aws-chunked") {
		return b, err
	}
	var out []byte
	for {
		head, rest, ok := bytes.Cut(b, []byte("\r\n"))
		digits, _, _ := strings.Cut(string(head), ";")
		n, err := strconv.ParseInt(digits, 16, 32)
		if err != nil || !ok || len(rest) < int(n) {
			return nil, errors.New("not aws-chunked")
		}
		if n == 0 {
			return out, nil
		}
		out, b = append(out, rest[:n]...), rest[n+2:]
	}
}

// TestS3 saves, lists, prunes and restores through the S3 driver, with a file of
// several parts.
func TestS3(t *testing.T) {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "HUSH", "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "",
		"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
	} {
		t.Setenv(name, value)
	}
	fake := &fakeS3{objects: map[string][]byte{}, parts: map[string]map[int][]byte{}}
	server := httptest.NewServer(fake)
	defer server.Close()
	b, err := checkpoint.Open(t.Context(), "s3://bucket/of/ours?region=eu-central-1&use_path_style=true&endpoint="+server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	dir := tempDir(t)
	v := newVault(t, b, dir, newClock().now)
	states := map[uint64]contents{}
	for seq := range uint64(4) {
		states[seq] = stateOf(int(seq), 1, int(seq)+2)
		states[seq]["000009.sst"] = strings.Repeat("many parts ", 2<<20)
		info := save(t, v, seq, states[seq])
		if seq > 0 && info.Uploaded > 1<<20 {
			t.Errorf("save %d uploaded %d bytes", seq, info.Uploaded)
		}
	}
	if fake.uploads == 0 {
		t.Error("no upload came in parts")
	}
	if n, err := v.Prune(t.Context(), 3); n != 3 || err != nil {
		t.Errorf("Prune = %d, %v, want a manifest, a log and a table", n, err)
	}
	if n := mustRestore(t, v, dir, states); n != 3 {
		t.Errorf("%d usable checkpoints", n)
	}
	for key := range fake.objects {
		if !strings.HasPrefix(key, "of/ours/some/where/3/") {
			t.Errorf("object %s is not below the prefix", key)
		}
	}

	// An object that is gone is known as such from S3's own answer.
	for key := range fake.objects {
		if strings.Contains(key, "/files/") {
			fake.objects[key] = nil
		}
	}
	infos := list(t, v)
	if _, err := restored(t, v, infos[0], filepath.Join(dir, "x")); !errors.Is(err, checkpoint.ErrDamaged) {
		t.Errorf("Restore without files = %v, want ErrDamaged", err)
	}
	if !gocmp.Equal(ids(infos), []uint64{3, 2, 1}) || infos[0].Unusable == "" {
		t.Errorf("List = %+v", infos)
	}
}

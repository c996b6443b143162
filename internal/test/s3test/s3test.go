// Package s3test is a small S3 server for tests. It does not check signatures;
// tests can inspect the requests, including their authentication.
package s3test

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Server answers as much of S3 as a client of checkpoints asks: objects in parts
// and whole, and listings in small pages, of one bucket.
type Server struct {
	now     func() time.Time
	mu      sync.Mutex
	objects map[string]object
	parts   map[string]map[int][]byte
	uploads int
}

type object struct {
	content []byte
	written time.Time
}

// Bucket is the name of the one bucket, which requests have in their path.
const Bucket = "bucket"

// New makes a server with an empty bucket.
func New(now func() time.Time) *Server {
	return &Server{now: now, objects: map[string]object{}, parts: map[string]map[int][]byte{}}
}

// Uploads is how many objects came in parts.
func (f *Server) Uploads() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.uploads
}

// Keys lists all objects.
func (f *Server) Keys() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.objects))
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

func (f *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	q := r.URL.Query()
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	_, there := f.objects[key]
	switch {
	case bucket != Bucket:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, "<Error><Code>NoSuchBucket</Code></Error>")
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
		whole := object{written: f.now()}
		for _, n := range slices.Sorted(maps.Keys(parts)) {
			whole.content = append(whole.content, parts[n]...)
		}
		f.objects[key] = whole
		fmt.Fprint(w, "<CompleteMultipartUploadResult><Bucket>bucket</Bucket><ETag>\"whole-2\"</ETag></CompleteMultipartUploadResult>")
	case r.Method == http.MethodPut:
		f.objects[key] = object{body, f.now()}
		w.Header().Set("ETag", `"single"`)
	case r.Method == http.MethodDelete:
		delete(f.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case !there:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, "<Error><Code>NoSuchKey</Code></Error>")
	default:
		w.Header().Set("Last-Modified", f.objects[key].written.UTC().Format(http.TimeFormat))
		w.Header().Set("ETag", `"single"`)
		w.Header().Set("Content-Length", strconv.Itoa(len(f.objects[key].content)))
		if r.Method == http.MethodGet {
			_, _ = w.Write(f.objects[key].content)
		}
	}
}

func (f *Server) list(w http.ResponseWriter, prefix, after, most string) {
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
		l.Contents = append(l.Contents, listed{key, len(f.objects[key].content), f.objects[key].written.UTC().Format(time.RFC3339), `"x"`})
	}
	_ = xml.NewEncoder(w).Encode(l)
}

// readBody decodes the signed chunks in which the client streams a body.
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

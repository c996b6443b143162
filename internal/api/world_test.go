package api_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/test/openapitest"
)

// world is a policies log and a server on it.
type world struct {
	*testing.T
	log     *filelog.Log
	service *api.Service
	address string
	logged  *record // what the servers log
	conn    *grpc.ClientConn
	pb.PoliciesClient
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func newWorld(t *testing.T, change ...func(*api.Service)) *world {
	t.Helper()
	log, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: filepath.Join(t.TempDir(), "policies"), Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	w := &world{T: t, log: log, logged: &record{}}
	w.serve(change...)
	return w
}

func (w *world) append(ctx context.Context, payload []byte) error {
	return w.log.AppendSync(ctx, 0, []eventlog.Message{{Payload: payload}})
}

// serve starts another server on the same log, and talks to that from now on.
func (w *world) serve(change ...func(*api.Service)) {
	w.Helper()
	store, err := policylog.OpenStore(w.log, w.append, func() time.Time { return noon })
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = store.Close() })
	w.service = &api.Service{Store: store, Now: func() time.Time { return noon }, Log: slog.New(slog.NewTextHandler(w.logged, nil))}
	for _, c := range change {
		c(w.service)
	}
	h, err := api.Handler(w.service, nil, slog.New(slog.NewTextHandler(w.logged, nil)))
	if err != nil {
		w.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	server := api.Server(h, nil)
	go func() { _ = server.Serve(l) }()
	w.Cleanup(func() { _ = server.Close() })
	w.address = l.Addr().String()
	if w.conn, err = grpc.NewClient("passthrough:///"+w.address, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		w.Fatal(err)
	}
	conn := w.conn
	w.Cleanup(func() { _ = conn.Close() })
	w.PoliciesClient = pb.NewPoliciesClient(w.conn)
}

func (w *world) doc(text string) *structpb.Struct {
	w.Helper()
	s := &structpb.Struct{}
	if err := protojson.Unmarshal([]byte(text), s); err != nil {
		w.Fatal(err)
	}
	return s
}

func (w *world) policy(name, spec string) *structpb.Struct {
	w.Helper()
	return w.doc(`{"apiVersion": "armadaproject.io/v1", "kind": "RetryPolicy", "metadata": {"name": "` + name + `"}, "spec": {` + spec + `}}`)
}

func (w *world) group(name, spec string) *structpb.Struct {
	w.Helper()
	return w.doc(`{"apiVersion": "refloat.github.io/v1", "kind": "GroupPolicy", "metadata": {"name": "` + name + `"}, "spec": {` + spec + `}}`)
}

func (w *world) queue(name, rest string) *structpb.Struct {
	w.Helper()
	return w.doc(`{"kind": "Queue", "name": "` + name + `"` + rest + `}`)
}

func (w *world) create(docs ...*structpb.Struct) {
	w.Helper()
	for _, doc := range docs {
		if _, err := w.Create(w.Context(), &pb.CreateRequest{Document: doc, Reason: "test"}); err != nil {
			w.Fatal(err)
		}
	}
}

// refused checks an error: its code, and what its message must hold.
func (w *world) refused(err error, code codes.Code, words ...string) {
	w.Helper()
	s, ok := status.FromError(err)
	if err == nil || !ok || s.Code() != code {
		w.Errorf("got %v, want %v", err, code)
		return
	}
	for _, word := range words {
		if !strings.Contains(s.Message(), word) {
			w.Errorf("%q does not say %q", s.Message(), word)
		}
	}
}

// record collects what is written to it.
type record struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// rest asks over REST, with pairs of headers, and returns the status and the body.
func (w *world) rest(method, path, body string, headers ...string) (int, string) {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), method, "http://"+w.address+path, strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if r.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.Fatal(err)
	}
	openapitest.Check(w, r, resp.StatusCode, resp.Header, string(text))
	return resp.StatusCode, string(text)
}

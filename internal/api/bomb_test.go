package api_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/pb"
)

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error)   { return v.([]byte), nil }
func (rawCodec) Unmarshal(b []byte, v any) error { *v.(*[]byte) = bytes.Clone(b); return nil }
func (rawCodec) Name() string                    { return "proto" }

// inField wraps b as a field of a message.
func inField(number protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), b)
}

// bombs are requests of 31 MiB that compress to some kilobytes: an Apply of one document
// {"a": [...]} of empty values, and of values nested in each other.
func bombs() map[string][]byte {
	document := func(list []byte) []byte {
		value := inField(6, list) // Value.list_value
		entry := append(inField(1, []byte("a")), inField(2, value)...)
		return inField(1, inField(1, entry))
	}
	nested := inField(1, nil) // ListValue.values
	for range 50 {
		nested = inField(1, inField(6, nested))
	}
	fill := func(b []byte) []byte { return bytes.Repeat(b, 31<<20/len(b)) }
	return map[string][]byte{
		"flat":      document(fill(inField(1, nil))),
		"nested":    document(fill(nested)),
		"documents": fill(inField(1, nil)),
		"too large": document(bytes.Repeat(inField(1, nil), 32<<20)),
	}
}

// allocated is how many bytes f allocates, whether they are collected on the way or not.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestDecompressionBombs checks that a compressed request costs little more than the allowed size: it is measured
// before it is decoded, and not read at all without permission. Not parallel: it measures the allocations of the
// process.
func TestDecompressionBombs(t *testing.T) { //nolint:paralleltest // see above
	if testing.Short() {
		t.Skip("it takes long, and the race detector, which runs short tests, takes memory of its own")
	}
	auth := &api.Auth{Tokens: map[string]api.Token{"ci": {SHA256: digestOf(ciToken), Groups: []string{"ops"}}, "reader": {SHA256: digestOf("reader")}}, Permissions: everybody()}
	if err := auth.Check(); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(s *api.Service) { s.Auth = auth })
	for name, bomb := range bombs() {
		for _, c := range []struct {
			token, method string
			code          codes.Code
			mebibytes     uint64
		}{
			{"nobody", pb.Policies_Apply_FullMethodName, codes.Unauthenticated, 10},
			{"reader", pb.Policies_Apply_FullMethodName, codes.PermissionDenied, 10},
			{"reader", pb.Policies_List_FullMethodName, codes.ResourceExhausted, 10},
			{ciToken, pb.Policies_Brake_FullMethodName, codes.ResourceExhausted, 10},
			{ciToken, pb.Policies_Create_FullMethodName, codes.ResourceExhausted, 30},
			{ciToken, pb.RetryPolicyService_CreateRetryPolicy_FullMethodName, codes.ResourceExhausted, 30},
			{ciToken, pb.Policies_Apply_FullMethodName, codes.ResourceExhausted, 200},
		} {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+c.token)
			var err error
			cost := allocated(func() {
				err = w.conn.Invoke(ctx, c.method, bomb, new([]byte), grpc.ForceCodec(rawCodec{}), grpc.UseCompressor(gzip.Name))
			})
			w.refused(err, c.code)
			if cost > c.mebibytes<<20 {
				t.Errorf("%s to %s by %s: cost %d MiB, want at most %d", name, c.method, c.token, cost>>20, c.mebibytes)
			}
		}
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+ciToken)
	if _, err := w.Create(ctx, &pb.CreateRequest{Document: w.queue("ml", "")}, grpc.UseCompressor(gzip.Name)); err != nil {
		t.Errorf("an honest compressed request: %v", err)
	}
}

// However many ask at once, few are served at once; and overrides do not wait for readers.
func TestBoundedConcurrency(t *testing.T) {
	t.Parallel()
	const readers = 100
	var inside, most atomic.Int64
	entered, leave := make(chan struct{}, readers), make(chan struct{})
	w := newWorld(t, func(s *api.Service) {
		s.Source = func() *pb.Source {
			n := inside.Add(1)
			for {
				if seen := most.Load(); n <= seen || most.CompareAndSwap(seen, n) {
					break
				}
			}
			entered <- struct{}{}
			<-leave
			inside.Add(-1)
			return nil
		}
	})
	var group sync.WaitGroup
	for range readers {
		group.Go(func() {
			if _, err := w.Status(context.Background(), &pb.StatusRequest{}); err != nil {
				t.Error(err)
			}
		})
	}
	<-entered
	if _, err := w.Brake(t.Context(), &pb.BrakeRequest{All: true, Kill: true, Reason: "x"}); err != nil {
		t.Errorf("kill while readers are stuck: %v", err)
	}
	if code, text := w.rest("POST", "/refloat/v1/brakes:release", `{"all": true, "reason": "x"}`); code != 200 {
		t.Errorf("resume while readers are stuck: %d %s", code, text)
	}
	close(leave)
	group.Wait()
	if most.Load() > 16 {
		t.Errorf("%d readers were served at once", most.Load())
	}
}

// However many bodies are on their way, the bytes held of them are bounded in all; overrides do not wait for them, and
// the bytes are free again when the senders are gone.
func TestBoundedBodies(t *testing.T) {
	t.Parallel()
	const length = 2<<20 - 1<<10
	w := newWorld(t)
	part := strings.Repeat(" ", length-1) // all but the last byte: the request never ends
	busy := 0
	var open []net.Conn
	for range 48 { // 96 MiB
		conn, err := net.Dial("tcp", w.address)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
		t.Cleanup(func() { _ = conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(3 * time.Second)); err != nil {
			t.Fatal(err)
		}
		_, err = fmt.Fprintf(conn, "POST /refloat/v1/resources HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", length, part)
		if err != nil {
			busy++ // the server answered before it had read all
		}
	}
	refused := func() bool {
		code, _ := w.rest("POST", "/refloat/v1/resources", `{"kind": "`+strings.Repeat("x", 2<<20-1<<12)+`"}`)
		return code == 429
	}
	held := false
	for end := time.Now().Add(30 * time.Second); !held && time.Now().Before(end); { // until the server has read what was sent; it waits a minute for the rest
		held = refused()
	}
	if !held {
		t.Errorf("48 bodies of 2 MiB are held (%d were not taken), and more are read", busy)
	}
	if _, err := w.Brake(t.Context(), &pb.BrakeRequest{All: true, Kill: true, Reason: "x"}); err != nil {
		t.Errorf("kill while bodies are on their way: %v", err)
	}
	for _, conn := range open {
		_ = conn.Close()
	}
	for end := time.Now().Add(time.Minute); refused(); {
		if time.Now().After(end) {
			t.Fatal("the bytes of requests that ended are still held")
		}
	}
}

// A body is too large by one byte as by many.
func TestBodiesAtTheLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for over, want := range map[int]int{-1: 400, 0: 400, 1: 413, 3: 413, 5: 413, 6: 413, 100: 413} {
		body := "[" + strings.Repeat(" ", 64<<10+over-2) + "]"
		if code, text := w.rest("POST", "/refloat/v1/brakes", body); code != want {
			t.Errorf("%d bytes over the limit: %d %.100s, want %d", over, code, text, want)
		}
	}
}

// What a request may cost is known by its method: over REST too.
func TestRESTBodies(t *testing.T) {
	t.Parallel()
	auth := &api.Auth{Tokens: map[string]api.Token{"ci": {SHA256: digestOf(ciToken), Groups: []string{"ops"}}, "reader": {SHA256: digestOf("reader")}}, Permissions: everybody()}
	if err := auth.Check(); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(s *api.Service) { s.Auth = auth })
	for _, c := range []struct {
		token, method, path, body string
		code                      int
	}{
		{"reader", "POST", "/refloat/v1/apply", `{"no JSON`, 403},
		{"reader", "POST", "/refloat/v1/brakes", `{"no JSON`, 403},
		{"reader", "PUT", "/v1/retry-policy/x", `{"no JSON`, 403},
		{ciToken, "POST", "/refloat/v1/brakes", `{"reason": "` + strings.Repeat("x", 70<<10) + `"}`, 413},
		{ciToken, "POST", "/refloat/v1/resources", `{"kind": "` + strings.Repeat("x", 3<<20) + `"}`, 413},
		{ciToken, "POST", "/refloat/v1/apply", `{"documents": [{"kind": ` + strings.Repeat(`[[]],`, 1<<20) + `0]}]}`, 400},
		{ciToken, "POST", "/refloat/v1/apply", `{"documents": [{"kind": "Queue", "name": "ml"}]}`, 200},
	} {
		if code, text := w.rest(c.method, c.path, c.body, "Authorization", "Bearer "+c.token); code != c.code {
			t.Errorf("%s to %s by %s: %d %.200s, want %d", c.method, c.path, c.token, code, text, c.code)
		}
	}
}

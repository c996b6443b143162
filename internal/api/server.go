package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // armadactl compresses its requests
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/refloat/refloat/internal/api/pb"
)

// maxRequestBytes limits the size of a request.
const maxRequestBytes = 32 << 20

// Questions is another service on the same port, which changes nothing. Its callers need the permission GetJobs.
type Questions struct {
	File     protoreflect.FileDescriptor // with the service
	Register func(*grpc.Server)
	Gateway  func(context.Context, *runtime.ServeMux) error // registers its REST routes
	// Owns reports whether a path is one of its REST routes.
	Owns func(path string) bool
}

// Handler serves a service over gRPC and REST; asked, if not nil, beside it.
func Handler(s *Service, asked *Questions, log *slog.Logger) (http.Handler, error) {
	armada := &Armada{Service: s}
	rpc := grpc.NewServer(grpc.MaxRecvMsgSize(maxRequestBytes), grpc.StreamInterceptor(
		func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
			defer caught(log, info.FullMethod, &err)
			return handle(srv, stream)
		}), grpc.UnaryInterceptor(
		func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (resp any, err error) {
			defer caught(log, info.FullMethod, &err)
			if err := knownFields(info.FullMethod, req); err != nil {
				return nil, err
			}
			return handle(ctx, req)
		}))
	pb.RegisterPoliciesServer(rpc, s)
	pb.RegisterRetryPolicyServiceServer(rpc, armada)
	options := []runtime.ServeMuxOption{
		runtime.WithIncomingHeaderMatcher(func(string) (string, bool) { return "", false }), // ServeHTTP reads them
		runtime.WithOutgoingHeaderMatcher(func(key string) (string, bool) { return key, key == leftOut }),
		runtime.WithRoutingErrorHandler(notRouted),
		runtime.WithMiddlewares(onlyKnown(asked)),
		runtime.WithDisablePathLengthFallback(), // a form POST is not a GET
	}
	ours := runtime.NewServeMux(append(slices.Clone(options), runtime.WithMarshalerOption(runtime.MIMEWildcard, newStrictJSON()))...)
	armadas := runtime.NewServeMux(append(slices.Clone(options), runtime.WithMarshalerOption(runtime.MIMEWildcard, &armadaJSON{}))...)
	ctx := context.Background() // for registration only
	if err := errors.Join(pb.RegisterPoliciesHandlerServer(ctx, ours, s), pb.RegisterRetryPolicyServiceHandlerServer(ctx, armadas, armada), serveOpenAPI(ours)); err != nil {
		return nil, fmt.Errorf("serve the API: %w", err)
	}
	f := &front{service: s, asked: asked, log: log, rpc: rpc, ours: ours, armadas: armadas}
	if asked != nil {
		asked.Register(rpc)
		f.answers = runtime.NewServeMux(append(options, runtime.WithMarshalerOption(runtime.MIMEWildcard, newStrictJSON()))...)
		if err := asked.Gateway(ctx, f.answers); err != nil {
			return nil, fmt.Errorf("serve the API: %w", err)
		}
	}
	for g := range groups {
		f.slots[g] = make(chan struct{}, g.atOnce())
		f.bodies[g].left.Store(g.bodies())
	}
	return f, nil
}

// front handles every request first: it reads no body before the caller is authenticated and authorized, and
// decodes nothing before its size is checked.
type front struct {
	service *Service
	asked   *Questions // nil: only the service
	log     *slog.Logger
	rpc     *grpc.Server
	ours    *runtime.ServeMux     // REST
	armadas *runtime.ServeMux     // REST in Armada's form
	answers *runtime.ServeMux     // REST of asked
	slots   [groups]chan struct{} // for requests in progress
	turns   [groups]turns         // of clients, for the slots
	bodies  [groups]budget        // for what is read of requests
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r, who, err := f.service.authenticated(r)
	c := f.asked.callOf(r)
	if err == nil {
		err = c.allows(f.service.Auth, who)
	}
	if isRPC(r) {
		f.handle(&c, f.rpc, w, r, who, err, func(err error) { refuseRPC(w, err) })
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	rest := f.ours
	if strings.HasPrefix(r.URL.Path, "/v1/") {
		rest = f.armadas
	} else if f.asked != nil && f.asked.Owns(r.URL.Path) {
		rest = f.answers
	}
	if err == nil {
		err = fit(f.service.Auth, r)
	}
	f.handle(&c, rest, w, r, who, err, func(err error) {
		runtime.DefaultHTTPErrorHandler(r.Context(), rest, &runtime.JSONPb{}, w, r, err)
	})
}

// handle serves a request, unless it is refused already. A refused change is logged.
func (f *front) handle(c *call, h http.Handler, w http.ResponseWriter, r *http.Request, who Principal, err error, refuse func(error)) {
	if err == nil {
		err = f.serve(c, h, w, r)
	}
	if err != nil {
		f.service.refused(r, who, c, err)
		refuse(err)
	}
}

// serve reads the body and serves the request, within the concurrency limit of its group. Only large bodies are
// read within a slot, so that a slow sender of a small body blocks nobody; the bytes of the others are bounded in all.
func (f *front) serve(c *call, h http.Handler, w http.ResponseWriter, r *http.Request) (err error) {
	body := held{from: &f.bodies[c.group]}
	defer func() { body.from.left.Add(body.bytes) }()
	if c.group != bulk {
		if err := c.read(w, r, &body); err != nil {
			return err
		}
	}
	leave, err := f.enter(r.Context(), c.group)
	if err != nil {
		return err
	}
	defer leave()
	if c.group == streams {
		stream := &streamed{to: http.NewResponseController(w)}
		defer stream.end()
		r = r.WithContext(context.WithValue(r.Context(), streamKey{}, stream))
	}
	if c.group == bulk {
		if err := c.read(w, r, &body); err != nil {
			return err
		}
	}
	defer caught(f.log, r.URL.Path, &err)
	h.ServeHTTP(w, r)
	return nil
}

// streamed is the answer to a request that a stream writes. A gRPC method may still run when it has ended: its client is gone.
type streamed struct {
	mu    sync.Mutex
	to    *http.ResponseController
	ended bool
}

func (s *streamed) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

type streamKey struct{}

// ExtendWrite gives a stream until a time to send what it sends next; after it, the stream is reset.
func ExtendWrite(ctx context.Context, until time.Time) {
	s, ok := ctx.Value(streamKey{}).(*streamed)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		_ = s.to.SetWriteDeadline(until) // a connection that cannot is bounded as all are
	}
}

// refuseRPC rejects a gRPC request, with trailers only.
func refuseRPC(w http.ResponseWriter, err error) {
	s := status.Convert(err)
	h := w.Header()
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Status", strconv.Itoa(int(s.Code())))
	h.Set("Grpc-Message", url.PathEscape(s.Message()))
	w.WriteHeader(http.StatusOK)
}

// maxValues limits the values of a request, which take up to two hundred bytes each when decoded.
const maxValues = 1 << 20

// fit rejects a REST request that no legitimate client makes.
func fit(auth *Auth, r *http.Request) error {
	host := r.Host
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(strings.Trim(host, "[]"), "80")
	}
	// A web page in a browser on this machine can use any host name for us, and there is no authentication.
	if auth == nil && !OnLoopback(host) {
		return status.Errorf(codes.PermissionDenied, "%.100q is not a name of this machine: without authentication, use localhost", r.Host)
	}
	if new(http.CrossOriginProtection).Check(r) != nil || foreign(r) {
		return status.Error(codes.PermissionDenied, "pages of other origins may link to this, and not make requests of it")
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "query: %v", err)
	}
	for name, values := range query {
		if !utf8.ValidString(strings.Join(append(values, name), "")) {
			return status.Error(codes.InvalidArgument, "query: not UTF-8")
		}
	}
	if !utf8.ValidString(r.URL.Path) {
		return status.Error(codes.InvalidArgument, "path: not UTF-8")
	}
	return nil
}

// foreign reports whether a page of another origin makes the browser ask for something that changes nothing, other than by
// opening it in a window, which takes a click each time: such a page could otherwise have whatever is expensive here worked
// on, as often as it likes (https://www.w3.org/TR/fetch-metadata/). Programs send no such headers.
func foreign(r *http.Request) bool {
	switch h := r.Header; h.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return false
	default:
		return h.Get("Sec-Fetch-Mode") != "navigate" || h.Get("Sec-Fetch-Dest") != "document" || h.Get("Sec-Purpose") != ""
	}
}

// notRouted answers a request without a route.
func notRouted(ctx context.Context, mux *runtime.ServeMux, m runtime.Marshaler, w http.ResponseWriter, r *http.Request, code int) {
	if code == http.StatusMethodNotAllowed {
		err := &runtime.HTTPStatusError{HTTPStatus: code, Err: status.Errorf(codes.Unimplemented, "method %s is not allowed for this path", r.Method)}
		runtime.DefaultHTTPErrorHandler(ctx, mux, m, w, r, err)
		return
	}
	runtime.DefaultRoutingErrorHandler(ctx, mux, m, w, r, code)
}

// caught turns a panic into an error, so that a bad request does not end the process. Call it with defer.
func caught(log *slog.Logger, what string, err *error) {
	if p := recover(); p != nil {
		log.Error("request failed", slog.String("request", what), slog.Any("panic", p))
		*err = status.Error(codes.Internal, "the server failed on this request; see its log")
	}
}

// Server returns an http.Server for a handler, which supports HTTP/2 without TLS too, for gRPC on loopback.
func Server(h http.Handler, config *tls.Config) *http.Server {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(config == nil)
	return &http.Server{Handler: h, Protocols: &p, TLSConfig: config, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 2 * time.Minute, IdleTimeout: 5 * time.Minute}
}

// OnLoopback reports whether only this machine can reach an address.
func OnLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

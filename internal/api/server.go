package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // armadactl compresses its requests
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/refloat/refloat/internal/api/pb"
)

// maxRequestBytes bounds a request.
const maxRequestBytes = 32 << 20

// Handler serves gRPC and REST of a service.
func Handler(s *Service, log *slog.Logger) (http.Handler, error) {
	armada := &Armada{Service: s}
	rpc := grpc.NewServer(grpc.MaxRecvMsgSize(maxRequestBytes), grpc.UnaryInterceptor(
		func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (resp any, err error) {
			defer caught(log, info.FullMethod, &err)
			return handle(ctx, req)
		}))
	pb.RegisterPoliciesServer(rpc, s)
	pb.RegisterRetryPolicyServiceServer(rpc, armada)
	options := []runtime.ServeMuxOption{
		runtime.WithIncomingHeaderMatcher(func(string) (string, bool) { return "", false }), // ServeHTTP reads them
		runtime.WithOutgoingHeaderMatcher(func(key string) (string, bool) { return key, key == leftOut }),
		runtime.WithRoutingErrorHandler(notRouted),
		runtime.WithDisablePathLengthFallback(), // a POST of a form is no GET
	}
	ours := runtime.NewServeMux(options...)
	armadas := runtime.NewServeMux(append(options, runtime.WithMarshalerOption(runtime.MIMEWildcard, newArmadaJSON()))...)
	ctx := context.Background() // of registration only
	if err := errors.Join(pb.RegisterPoliciesHandlerServer(ctx, ours, s), pb.RegisterRetryPolicyServiceHandlerServer(ctx, armadas, armada)); err != nil {
		return nil, fmt.Errorf("serve the API: %w", err)
	}
	f := &front{service: s, log: log, rpc: rpc, ours: ours, armadas: armadas, sameOrigin: http.NewCrossOriginProtection()}
	return f, nil
}

// front is what every request comes through: nothing of a body is read before it is
// known who asks.
type front struct {
	service    *Service
	log        *slog.Logger
	rpc        *grpc.Server
	ours       *runtime.ServeMux // REST
	armadas    *runtime.ServeMux // REST as Armada writes it
	sameOrigin *http.CrossOriginProtection
}

// ServeHTTP implements http.Handler.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who, err := f.service.Auth.Who(metadata.NewIncomingContext(r.Context(), metadata.Pairs(
		"authorization", r.Header.Get("Authorization"), userHeader, r.Header.Get(userHeader))))
	if err == nil {
		r = r.WithContext(context.WithValue(r.Context(), admitted{}, who))
	}
	if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		if err != nil {
			refuseRPC(w, err)
			return
		}
		f.rpc.ServeHTTP(w, r)
		return
	}
	rest := f.ours
	if strings.HasPrefix(r.URL.Path, "/v1/") {
		rest = f.armadas
	}
	if err == nil {
		err = f.fit(w, r)
	}
	if err == nil {
		err = serve(f.log, rest, w, r)
	}
	if err != nil {
		runtime.DefaultHTTPErrorHandler(r.Context(), rest, &runtime.JSONPb{}, w, r, err)
	}
}

// refuseRPC answers a gRPC request that is not let in: with trailers only.
func refuseRPC(w http.ResponseWriter, err error) {
	s := status.Convert(err)
	h := w.Header()
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Status", strconv.Itoa(int(s.Code())))
	h.Set("Grpc-Message", url.PathEscape(s.Message()))
	w.WriteHeader(http.StatusOK)
}

// maxValues bounds the values in a JSON body, which take a hundred times their
// length once they are read.
const maxValues = 4 << 20

// fit refuses a REST request that no client of ours makes, and reads its body.
func (f *front) fit(w http.ResponseWriter, r *http.Request) error {
	host := r.Host
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(strings.Trim(host, "[]"), "80")
	}
	// A page of a browser on this machine may name us as it likes, and nobody signs in.
	if f.service.Auth == nil && !OnLoopback(host) {
		return status.Errorf(codes.PermissionDenied, "%.100q is not a name of this machine: nobody signs in here, so use localhost", r.Host)
	}
	if err := f.sameOrigin.Check(r); err != nil {
		return status.Error(codes.PermissionDenied, "pages of other sites may not change policies")
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
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequestBytes))
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return &runtime.HTTPStatusError{HTTPStatus: http.StatusRequestEntityTooLarge, Err: status.Errorf(codes.InvalidArgument, "body: larger than %d MiB", maxRequestBytes>>20)}
	} else if err != nil {
		return status.Error(codes.Canceled, "body: not read to its end")
	}
	if bytes.Count(body, []byte(",")) > maxValues {
		return status.Errorf(codes.InvalidArgument, "body: more than %d values", maxValues)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// notRouted answers what no route takes.
func notRouted(ctx context.Context, mux *runtime.ServeMux, m runtime.Marshaler, w http.ResponseWriter, r *http.Request, code int) {
	if code == http.StatusMethodNotAllowed {
		err := &runtime.HTTPStatusError{HTTPStatus: code, Err: status.Errorf(codes.Unimplemented, "%s is not for this path", r.Method)}
		runtime.DefaultHTTPErrorHandler(ctx, mux, m, w, r, err)
		return
	}
	runtime.DefaultRoutingErrorHandler(ctx, mux, m, w, r, code)
}

func serve(log *slog.Logger, h http.Handler, w http.ResponseWriter, r *http.Request) (err error) {
	defer caught(log, r.URL.Path, &err)
	h.ServeHTTP(w, r)
	return nil
}

// caught turns a panic into an error: one bad request must not end the process.
// Called by defer.
func caught(log *slog.Logger, what string, err *error) {
	if p := recover(); p != nil {
		log.Error("request failed", slog.String("request", what), slog.Any("panic", p))
		*err = status.Error(codes.Internal, "this request made the server fail; its log says more")
	}
}

// Server is an http.Server for a handler, with HTTP/2 without TLS too, as gRPC on
// loopback wants it.
func Server(h http.Handler, config *tls.Config) *http.Server {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(config == nil)
	return &http.Server{Handler: h, Protocols: &p, TLSConfig: config, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 5 * time.Minute}
}

// OnLoopback says whether only this machine can reach an address.
func OnLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

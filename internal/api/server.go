package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // armadactl compresses its requests
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
	headers := []runtime.ServeMuxOption{
		runtime.WithIncomingHeaderMatcher(func(key string) (string, bool) {
			if strings.EqualFold(key, userHeader) {
				return userHeader, true
			}
			return runtime.DefaultHeaderMatcher(key)
		}),
		runtime.WithOutgoingHeaderMatcher(func(key string) (string, bool) { return key, key == leftOut }),
	}
	ours := runtime.NewServeMux(headers...)
	armadas := runtime.NewServeMux(append(headers, runtime.WithMarshalerOption(runtime.MIMEWildcard, newArmadaJSON()))...)
	ctx := context.Background() // of registration only
	if err := errors.Join(pb.RegisterPoliciesHandlerServer(ctx, ours, s), pb.RegisterRetryPolicyServiceHandlerServer(ctx, armadas, armada)); err != nil {
		return nil, fmt.Errorf("serve the API: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			rpc.ServeHTTP(w, r)
			return
		}
		mux := ours
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			mux = armadas
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxRequestBytes)
		if err := serve(log, mux, w, r); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}), nil
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

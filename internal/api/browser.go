package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// authenticated returns a request with its authenticated caller, whom the service's methods then know.
func (s *Service) authenticated(r *http.Request) (*http.Request, Principal, error) {
	address := s.addressOf(r)
	via := "rest"
	switch {
	case isRPC(r):
		via = "grpc"
	case !Serves(r):
		via = "page"
	}
	r = r.WithContext(context.WithValue(r.Context(), originKey{}, origin{address, via}))
	who, err := s.Auth.Who(metadata.NewIncomingContext(withClient(r.Context(), Principal{}, address), metadata.Pairs(
		"authorization", r.Header.Get("Authorization"), userHeader, r.Header.Get(userHeader))))
	if err != nil {
		return r, who, err
	}
	ctx := s.Auth.withQueues(withClient(r.Context(), who, address), who)
	return r.WithContext(context.WithValue(ctx, admitted{}, who)), who, nil
}

// Admit authenticates the caller of a request that the service does not serve itself, and rejects what its own REST
// requests are rejected for: a foreign origin, or a foreign name of this machine; and a caller without GetJobs. The service's methods know the caller
// by the context of the request that Admit returns.
func (s *Service) Admit(r *http.Request) (*http.Request, Principal, error) {
	if who, ok := s.bySession(r); ok {
		r = r.WithContext(context.WithValue(r.Context(), admitted{}, who))
	}
	r, who, err := s.authenticated(r)
	if err == nil {
		err = fit(s.Auth, r)
	}
	if err == nil { // what is not a change shows jobs
		err = s.Auth.mayAnywhere(who, GetJobs)
	}
	return r, who, err
}

// Allowed reports whether a caller has at least one of these permissions, on all queues or on one.
func (s *Service) Allowed(who Principal, verbs ...Verb) bool {
	return slices.ContainsFunc(verbs, func(v Verb) bool { return s.Auth.mayAnywhere(who, v) == nil })
}

// Refusal returns the HTTP status and the message of an error of the service; false: it is none.
func Refusal(err error) (code int, message string, ok bool) {
	s, ok := status.FromError(err)
	if !ok || err == nil {
		return 0, "", false
	}
	return runtime.HTTPStatusFromCode(s.Code()), s.Message(), true
}

// Serves reports whether a request is for the API: gRPC, or REST in our form or Armada's.
func Serves(r *http.Request) bool {
	return isRPC(r) || strings.HasPrefix(r.URL.Path, "/refloat/") || strings.HasPrefix(r.URL.Path, "/v1/")
}

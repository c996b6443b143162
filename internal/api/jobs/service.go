package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/jobs/pb"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
)

// Service answers questions. All fields but Limits are required.
type Service struct {
	pb.UnimplementedJobsServer

	// Source answers. Without Jobs, only questions that need no job database: WhatIf, Verify and ListPartitions.
	Source *query.Source
	Now    func() time.Time
	Log    *slog.Logger
	Limits Limits
	// Program is the version of this program, for reports of verifications.
	Program string

	watching api.Shares // streams
}

// Limits bound what clients cost; a zero value is replaced by its default.
type Limits struct {
	Timeout  time.Duration // of a question; default 30 s
	Whole    time.Duration // of a question that reads whole logs; default 100 s, which the server's timeout of writes allows
	Every    time.Duration // polling interval of streams; default 1 s
	Streams  int           // at once; default 32
	Each     int           // streams of one client at once; default 8
	Behind   int           // decisions of a partition that a stream may lag behind; default 100000
	Patience time.Duration // after which a stream that sends nothing is reset; default 30 s
}

// Questions describes the service to the server of the API.
func (s *Service) Questions() *api.Questions {
	limited := s.Source.Limited(api.QueuesOf)
	s.Source = &limited
	return &api.Questions{
		File:     pb.File_internal_api_jobs_pb_jobs_proto,
		Register: func(to *grpc.Server) { pb.RegisterJobsServer(to, s) },
		Gateway: func(ctx context.Context, mux *runtime.ServeMux) error {
			return errors.Join(pb.RegisterJobsHandlerServer(ctx, mux, s), s.serveWatch(mux)) // the last one registered is asked first
		},
		Owns: owns,
	}
}

// owns reports whether a path is one of the REST routes of pb/jobs.proto.
func owns(path string) bool {
	rest, ok := strings.CutPrefix(path, "/refloat/v1/")
	first, _, _ := strings.Cut(rest, "/")
	switch first {
	case "jobs", "runs", "decisions", "groups", "queues", "search", "top", "summary", "shadow", "whatif", "verify", "partitions", "watch":
		return ok
	}
	return false
}

// The sizes of pages and of other bounded lists.
const (
	defaultPage = 100
	maxPage     = 1000
	defaultTop  = 10
	maxRecords  = 10000 // of a history or a report
)

func pageSize(name string, asked int32, otherwise int) (int, error) {
	switch {
	case asked < 0 || asked > maxPage:
		return 0, status.Errorf(codes.InvalidArgument, "%s %d: want 1 to %d, or 0 for %d", name, asked, maxPage, otherwise)
	case asked == 0:
		return otherwise, nil
	}
	return int(asked), nil
}

// ask answers a question within its timeout.
func (s *Service) ask(ctx context.Context, answer func(context.Context, *query.Source) error) error {
	if s.Source.Jobs == nil {
		return status.Error(codes.FailedPrecondition, noJobDB)
	}
	return s.askSoon(ctx, answer)
}

// askSoon does the same for a question that needs no job database.
func (s *Service) askSoon(ctx context.Context, answer func(context.Context, *query.Source) error) error {
	return s.askWithin(ctx, cmp.Or(s.Limits.Timeout, 30*time.Second), answer)
}

const noJobDB = "this server reads no job database: start it with --job-db URL"

func (s *Service) askWithin(ctx context.Context, timeout time.Duration, answer func(context.Context, *query.Source) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := answer(ctx, s.Source)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil { // of a connection that has one of its own
		err = fmt.Errorf("%w: %s", jobdb.ErrUnavailable, err.Error())
	}
	return s.failed(err)
}

// failed turns an error into a status.
func (s *Service) failed(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	if bad, ok := errors.AsType[*query.Invalid](err); ok {
		param := bad.Param
		switch param {
		case "":
			return status.Error(codes.InvalidArgument, clean(bad.Err.Error()))
		case "continue":
			param = "page_token"
		case "limit":
			param = "page_size"
		}
		return status.Errorf(codes.InvalidArgument, "%s: %s", param, clean(bad.Err.Error()))
	}
	var (
		missing   *query.NotFound
		undecided *query.NotDecided
		several   *query.Ambiguous
		none      *query.NoAnswer
	)
	code := codes.Internal
	switch {
	case errors.As(err, &missing), errors.As(err, &undecided):
		code = codes.NotFound
	case errors.As(err, &several):
		code = codes.InvalidArgument
	case errors.As(err, &none):
		code = codes.FailedPrecondition
	case errors.Is(err, query.ErrAllQueues):
		code = codes.PermissionDenied
	case errors.Is(err, query.ErrBusy):
		code = codes.ResourceExhausted
	case errors.Is(err, query.ErrNoLogs), errors.Is(err, query.ErrNoPolicies):
		code = codes.FailedPrecondition
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "the answer took too long: ask for less, such as one queue, or a smaller page")
	case errors.Is(err, jobdb.ErrUnavailable):
		s.Log.Warn("a question was not answered", slog.Any("error", err))
		return status.Error(codes.Unavailable, "the job database does not answer now: try again")
	}
	if code == codes.Internal { // it may name paths and hosts
		s.Log.Error("a question was not answered", slog.Any("error", err))
		return status.Error(codes.Internal, "the job database or the logs could not be read; see the server's log")
	}
	return status.Error(code, clean(err.Error()))
}

// clean makes an error text safe: it may quote names that users chose.
func clean(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = query.OneLine(strings.ToValidUTF8(line, "\uFFFD"))
	}
	return strings.Join(lines, "\n")
}

// message is a pointer to a message of pb/jobs.proto.
type message[M any] interface {
	*M
	proto.Message
}

// answered makes a message of the answer to a question, which is asked in one of the ways of a Service.
func answered[M any, P message[M]](ctx context.Context, ask func(context.Context, func(context.Context, *query.Source) error) error, question func(context.Context, *query.Source) (any, error)) (P, error) {
	out := P(new(M))
	return out, ask(ctx, func(ctx context.Context, from *query.Source) error {
		v, err := question(ctx, from)
		if err == nil {
			err = fill(out, v)
		}
		return err
	})
}

// fill makes a message from an answer: both have one JSON form, and the proto has every field of it.
func fill(to proto.Message, answer any) error {
	text, err := json.Marshal(answer)
	if err == nil {
		err = protojson.Unmarshal(text, to)
	}
	if err != nil {
		return fmt.Errorf("an answer does not fit pb/jobs.proto: %w", err)
	}
	return nil
}

package jobs

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/refloat/refloat/internal/api/jobs/pb"
)

// serveWatch serves WatchDecisions over REST: one JSON object a line, as grpc-gateway writes streams. (What it generates
// for a server in the same process has no streams.)
func (s *Service) serveWatch(on *runtime.ServeMux) error {
	return on.HandlePath(http.MethodGet, "/refloat/v1/watch/decisions", func(w http.ResponseWriter, r *http.Request, _ map[string]string) {
		_, out := runtime.MarshalerForRequest(on, r)
		stream := &lines{ctx: r.Context(), to: w, out: out}
		asked := &pb.WatchDecisionsRequest{}
		err := errors.Join(r.ParseForm(), runtime.PopulateQueryParameters(asked, r.Form, utilities.NewDoubleArray(nil)))
		if err != nil {
			err = status.Error(codes.InvalidArgument, err.Error())
		} else {
			err = s.WatchDecisions(asked, stream)
		}
		switch {
		case err == nil || status.Code(err) == codes.Canceled: // the client is gone
		case !stream.began:
			runtime.HTTPError(r.Context(), on, out, w, r, err)
		default:
			_ = stream.line(map[string]any{"error": status.Convert(err).Proto()}) // the client may be gone
		}
	})
}

// lines is a stream of JSON objects, one a line.
type lines struct {
	grpc.ServerStream // nil: what WatchDecisions calls is below
	ctx               context.Context
	to                http.ResponseWriter
	out               runtime.Marshaler
	began             bool
}

// Context implements grpc.ServerStream.
func (l *lines) Context() context.Context { return l.ctx }

// SendHeader implements grpc.ServerStream.
func (l *lines) SendHeader(metadata.MD) error {
	l.began = true
	l.to.Header().Set("Content-Type", "application/json")
	l.to.WriteHeader(http.StatusOK)
	return http.NewResponseController(l.to).Flush()
}

// Send implements grpc.ServerStreamingServer.
func (l *lines) Send(d *pb.Decision) error { return l.line(map[string]any{"result": d}) }

func (l *lines) line(v any) error {
	text, err := l.out.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(l.to, "%s\n", text)
	}
	if err != nil {
		return err
	}
	return http.NewResponseController(l.to).Flush()
}

package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/jobs/pb"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/report"
	"github.com/refloat/refloat/internal/audit/whatif"
	"github.com/refloat/refloat/internal/query"
)

// Client asks a server over gRPC what a query.Source answers. What answers have beside their JSON form is not set.
type Client struct {
	// Call calls the server. It may be called several times for a question: once a page.
	Call func(ctx context.Context, call func(context.Context, pb.JobsClient) error) error
}

var _ query.Answers = (*Client)(nil)

// one asks for one message by a method of the server, and reads it into an answer.
func one[R any, M proto.Message](ctx context.Context, c *Client, to any, method func(pb.JobsClient, context.Context, R, ...grpc.CallOption) (M, error), request R) error {
	return c.call(ctx, func(ctx context.Context, p pb.JobsClient) error {
		m, err := method(p, ctx, request)
		if err != nil {
			return err
		}
		return read(m, to)
	})
}

// call turns the status of an error into the error of a question.
func (c *Client) call(ctx context.Context, call func(context.Context, pb.JobsClient) error) error {
	err := c.Call(ctx, call)
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	switch text := s.Message(); s.Code() {
	case codes.InvalidArgument:
		if field, found := strings.CutPrefix(text, "set: "); found { // of a what-if
			return &query.Invalid{Param: "set", Err: errors.New(field)}
		}
		return &query.Invalid{Err: errors.New(text)}
	case codes.NotFound:
		return &query.NotFound{What: "it", Text: text}
	case codes.Canceled:
		return context.Canceled
	default:
		return errors.New(text)
	}
}

// read reads an answer from a message: both have one JSON form, but that of protobuf has large numbers as strings.
func read(m proto.Message, to any) error {
	text, err := json.Marshal(plain(m.ProtoReflect()))
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		return fmt.Errorf("this refloatctl does not understand the server's answer; upgrade it: %w", err)
	}
	return nil
}

// plain returns the fields of a message by their JSON names: lists and maps always, others if they are set.
func plain(m protoreflect.Message) any {
	if s, ok := m.Interface().(*structpb.Struct); ok {
		return s.AsMap()
	}
	out := map[string]any{}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch v := m.Get(f); {
		case f.IsMap():
			all := map[string]any{}
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				all[k.String()] = plainValue(f.MapValue(), v)
				return true
			})
			out[f.JSONName()] = all
		case f.IsList():
			all := []any{}
			for i := range v.List().Len() {
				all = append(all, plainValue(f, v.List().Get(i)))
			}
			out[f.JSONName()] = all
		case m.Has(f):
			out[f.JSONName()] = plainValue(f, v)
		}
	}
	return out
}

func plainValue(f protoreflect.FieldDescriptor, v protoreflect.Value) any {
	if f.Message() != nil {
		return plain(v.Message())
	}
	return v.Interface()
}

// codesOf are the names of all codes that a list selects.
func codesOf(l *query.List) []string {
	names := l.Codes
	for _, c := range l.Criteria.Codes {
		names = append(slices.Clip(names), c.String())
	}
	return names
}

// statesOf does the same for states.
func statesOf(list string, l *query.List) []string {
	names, known := l.States, query.States(list)
	for _, s := range l.Criteria.States {
		names = append(slices.Clip(names), known[s])
	}
	return names
}

// pages asks for pages until a list ends, or has as many rows as were asked for.
func pages[M proto.Message, R any](ctx context.Context, c *Client, l *query.List, ask func(ctx context.Context, p pb.JobsClient, size int32, token string) ([]M, string, error), visit func(*R) error) (next string, err error) {
	token, left := l.Continue, l.Limit
	for {
		size := maxPage
		if l.Limit > 0 {
			size = min(size, left)
		}
		var rows []M
		err := c.call(ctx, func(ctx context.Context, p pb.JobsClient) (err error) {
			rows, next, err = ask(ctx, p, int32(size), token)
			return err
		})
		if err != nil {
			return "", err
		}
		for _, m := range rows {
			row := new(R)
			if err := read(m, row); err != nil {
				return "", err
			}
			if err := visit(row); err != nil {
				return "", err
			}
		}
		if left -= len(rows); next == "" || l.Limit > 0 && left <= 0 {
			return next, nil
		}
		token = next
	}
}

// ListJobs implements query.Answers.
func (c *Client) ListJobs(ctx context.Context, l *query.List, visit func(*query.Job) error) (string, error) {
	return pages(ctx, c, l, func(ctx context.Context, p pb.JobsClient, size int32, token string) ([]*pb.Job, string, error) {
		m, err := p.ListJobs(ctx, &pb.ListJobsRequest{
			Queue: l.Queue, JobSet: l.JobSet, Group: l.Group, State: statesOf(query.Jobs, l), Waiting: l.Waiting, Code: codesOf(l), Policy: l.Policy, Rule: l.Rule, Node: l.Node,
			Category: l.Category, Since: query.TimeText(l.Since), Until: query.TimeText(l.Until), Sort: l.Sort, JobPrefix: l.JobPrefix, PageSize: size, PageToken: token,
		})
		return m.GetJobs(), m.GetNextPageToken(), err
	}, visit)
}

// ListRuns implements query.Answers.
func (c *Client) ListRuns(ctx context.Context, l *query.List, visit func(*query.Run) error) (string, error) {
	return pages(ctx, c, l, func(ctx context.Context, p pb.JobsClient, size int32, token string) ([]*pb.Run, string, error) {
		m, err := p.ListRuns(ctx, &pb.ListRunsRequest{
			JobId: l.JobID, Queue: l.Queue, JobSet: l.JobSet, Group: l.Group, State: statesOf(query.Runs, l), Code: codesOf(l), Policy: l.Policy, Rule: l.Rule, Node: l.Node,
			Category: l.Category, Since: query.TimeText(l.Since), Until: query.TimeText(l.Until), Sort: l.Sort, PageSize: size, PageToken: token,
		})
		return m.GetRuns(), m.GetNextPageToken(), err
	}, visit)
}

// ListDecisions implements query.Answers.
func (c *Client) ListDecisions(ctx context.Context, l *query.List, visit func(*audit.Decision) error) (string, error) {
	return pages(ctx, c, l, func(ctx context.Context, p pb.JobsClient, size int32, token string) ([]*pb.Decision, string, error) {
		m, err := p.ListDecisions(ctx, &pb.ListDecisionsRequest{
			JobId: l.JobID, Queue: l.Queue, JobSet: l.JobSet, Group: l.Group, Code: codesOf(l), Policy: l.Policy, Rule: l.Rule, Node: l.Node,
			Category: l.Category, Since: query.TimeText(l.Since), Until: query.TimeText(l.Until), Sort: l.Sort, PageSize: size, PageToken: token,
		})
		return m.GetDecisions(), m.GetNextPageToken(), err
	}, visit)
}

// ListGroups implements query.Answers.
func (c *Client) ListGroups(ctx context.Context, l *query.List, visit func(*query.Group) error) (string, error) {
	return pages(ctx, c, l, func(ctx context.Context, p pb.JobsClient, size int32, token string) ([]*pb.Group, string, error) {
		m, err := p.ListGroups(ctx, &pb.ListGroupsRequest{
			Queue: l.Queue, JobSet: l.JobSet, Group: l.Group, State: statesOf(query.Groups, l), Policy: l.Policy, Rule: l.Rule, Sort: l.Sort, PageSize: size, PageToken: token,
		})
		return m.GetGroups(), m.GetNextPageToken(), err
	}, visit)
}

// atMost is what a request says for a number of rows, where 0 means all: no more than the server gives.
func atMost(limit int) int32 {
	if limit == 0 {
		return maxPage
	}
	return int32(min(limit, maxPage))
}

// Search implements query.Answers.
func (c *Client) Search(ctx context.Context, asked query.SearchQuestion) (*query.Matches, error) {
	out := &query.Matches{}
	err := one(ctx, c, out, pb.JobsClient.Search, &pb.SearchRequest{Text: asked.Text, Kind: asked.Kinds, Limit: atMost(asked.Limit)})
	return out, err
}

// TopRetries implements query.Answers.
func (c *Client) TopRetries(ctx context.Context, by string, jobs bool, l *query.List) ([]query.Top, error) {
	var out struct{ Rows []query.Top }
	err := one(ctx, c, &out, pb.JobsClient.TopRetries, &pb.TopRetriesRequest{
		By: by, Queue: l.Queue, JobSet: l.JobSet, Group: l.Group, Code: codesOf(l), Policy: l.Policy, Rule: l.Rule, Node: l.Node,
		Category: l.Category, Since: query.TimeText(l.Since), Until: query.TimeText(l.Until), Limit: atMost(l.Limit), Jobs: jobs,
	})
	return out.Rows, err
}

// TopCost implements query.Answers.
func (c *Client) TopCost(ctx context.Context, asked query.CostQuestion) ([]query.Cost, error) {
	var out struct{ Rows []query.Cost }
	err := one(ctx, c, &out, pb.JobsClient.TopCost, &pb.TopCostRequest{
		By: asked.By, Key: asked.Key, Since: query.TimeText(asked.Since), Until: query.TimeText(asked.Until), Limit: atMost(asked.Limit),
	})
	return out.Rows, err
}

// GetJob implements query.Answers.
func (c *Client) GetJob(ctx context.Context, id, at string) ([]query.Job, error) {
	var out struct{ Jobs []query.Job }
	err := one(ctx, c, &out, pb.JobsClient.GetJob, &pb.GetJobRequest{JobId: id, At: at})
	return out.Jobs, err
}

// Stories implements query.Answers.
func (c *Client) Stories(ctx context.Context, job string) ([]*query.Story, error) {
	var out struct{ Stories []*query.Story }
	err := one(ctx, c, &out, pb.JobsClient.GetStory, &pb.GetStoryRequest{JobId: job})
	return out.Stories, err
}

func runAsked(run int) *uint32 {
	if run < 0 {
		return nil
	}
	n := uint32(run)
	return &n
}

// Explain implements query.Answers.
func (c *Client) Explain(ctx context.Context, job string, run int) (*query.Explanation, error) {
	out := &query.Explanation{}
	return out, one(ctx, c, out, pb.JobsClient.Explain, &pb.ExplainRequest{JobId: job, Run: runAsked(run)})
}

// WhyNot implements query.Answers.
func (c *Client) WhyNot(ctx context.Context, job string, run int, outcome string) (*query.WhyNot, error) {
	out := &query.WhyNot{}
	var none *query.NoAnswer
	ask := func(p pb.JobsClient, ctx context.Context, r *pb.ExplainWhyNotRequest, _ ...grpc.CallOption) (*pb.WhyNot, error) {
		m, err := p.ExplainWhyNot(ctx, r)
		if s := status.Convert(err); s.Code() == codes.FailedPrecondition && s.Message() != noJobDB && s.Message() != query.ErrNoPolicies.Error() {
			none = &query.NoAnswer{Why: s.Message()}
		}
		return m, err
	}
	err := one(ctx, c, out, ask, &pb.ExplainWhyNotRequest{JobId: job, Run: runAsked(run), Outcome: outcome})
	if none != nil {
		return nil, none
	}
	return out, err
}

// Group implements query.Answers.
func (c *Client) Group(ctx context.Context, k query.GroupKey) (g query.Group, err error) {
	err = one(ctx, c, &g, pb.JobsClient.GetGroup, &pb.GetGroupRequest{Group: k.Group, Queue: k.Queue, JobSet: k.JobSet})
	return g, err
}

// GroupHistory implements query.Answers.
func (c *Client) GroupHistory(ctx context.Context, k query.GroupKey) (*query.GroupHistory, error) {
	var out struct {
		Group   query.Group
		Records []query.Line
	}
	err := one(ctx, c, &out, pb.JobsClient.GetGroupHistory, &pb.GetGroupHistoryRequest{Group: k.Group, Queue: k.Queue, JobSet: k.JobSet})
	return &query.GroupHistory{Group: out.Group, Lines: out.Records}, err
}

// QueueStory implements query.Answers.
func (c *Client) QueueStory(ctx context.Context, about query.QueueQuestion) (*query.QueueStory, error) {
	out := &query.QueueStory{}
	return out, one(ctx, c, out, pb.JobsClient.GetQueueStory, &pb.GetQueueStoryRequest{Queue: about.Queue, JobSet: about.JobSet, Since: query.TimeText(about.Since), Limit: atMost(about.Limit)})
}

// BeforeAfter implements query.Answers.
func (c *Client) BeforeAfter(ctx context.Context, asked query.Around) (n query.BeforeAfter, err error) {
	err = one(ctx, c, &n, pb.JobsClient.GetBeforeAfter, &pb.GetBeforeAfterRequest{Queue: asked.Queue, Policy: asked.Policy, Rule: asked.Rule, First: query.TimeText(asked.First), Last: query.TimeText(asked.Last)})
	return n, err
}

// Shadow implements query.Answers.
func (c *Client) Shadow(ctx context.Context, queue string, since int64, visit func(*query.ShadowLine) error) error {
	var out struct{ Lines []query.ShadowLine }
	err := one(ctx, c, &out, pb.JobsClient.GetShadowReport, &pb.GetShadowReportRequest{Queue: queue, Since: query.TimeText(since)})
	for i := range out.Lines {
		if err == nil {
			err = visit(&out.Lines[i])
		}
	}
	return err
}

// WhatIf implements query.Answers.
func (c *Client) WhatIf(ctx context.Context, w *query.WhatIf) ([]query.WhatIfResult, error) {
	r := &pb.WhatIfRequest{Set: w.Set, Queue: w.Queue, From: query.TimeText(w.From), To: query.TimeText(w.To), Limit: atMost(w.Limit), Skip: int32(w.Skip)}
	for i := range w.Candidates {
		p, err := documents(&w.Candidates[i])
		if err != nil {
			return nil, err
		}
		r.Candidates = append(r.Candidates, p)
	}
	if w.Against != nil {
		var err error
		if r.Against, err = documents(w.Against); err != nil {
			return nil, err
		}
	}
	var out struct{ Results []query.WhatIfResult }
	if w.Limit == 0 { // of a request, that is the default
		r.Limit = 1
	}
	err := one(ctx, c, &out, pb.JobsClient.WhatIf, r)
	for i := range out.Results {
		if w.Limit == 0 {
			out.Results[i].Jobs, out.Results[i].Next = []whatif.Change{}, 0
		}
	}
	return out.Results, err
}

// Verify implements query.Answers. Of the options, only AllowWaiting and Until are asked of a server.
func (c *Client) Verify(ctx context.Context, o report.Options) (*report.Report, error) {
	r := &pb.VerifyRequest{AllowWaiting: o.AllowWaiting, Until: map[int32]uint64{}}
	for partition, envelope := range o.Until {
		r.Until[int32(partition)] = envelope
	}
	if o.Until != nil && len(o.Until) == 0 { // a server would verify all
		return nil, &query.Invalid{Err: errors.New("there is nothing to verify up to")}
	}
	var out struct{ Report report.Report }
	return &out.Report, one(ctx, c, &out, pb.JobsClient.Verify, r)
}

// ListPartitions implements query.Answers.
func (c *Client) ListPartitions(ctx context.Context) ([]query.Partition, error) {
	var out struct{ Partitions []query.Partition }
	err := one(ctx, c, &out, pb.JobsClient.ListPartitions, &pb.ListPartitionsRequest{})
	return out.Partitions, err
}

// documents are the resources of policies, as requests have them.
func documents(p *query.Policies) (*pb.Policies, error) {
	out := &pb.Policies{Name: p.Name}
	if p.Set == nil {
		return out, nil
	}
	var err error
	if out.Documents, err = api.DocumentsOf(p.Set); err != nil {
		return nil, err
	}
	if len(out.Documents) == 0 { // a server would take the policies in force
		return nil, &query.Invalid{Err: fmt.Errorf("%s: there is nothing in these policies; a server cannot be asked about none", p.Name)}
	}
	return out, nil
}

// WatchDecisions implements query.Answers; the server has its own polling interval.
func (c *Client) WatchDecisions(ctx context.Context, l *query.List, last int, _ time.Duration, visit func(*audit.Decision) error, shown func() error) error {
	return c.call(ctx, func(ctx context.Context, p pb.JobsClient) error {
		stream, err := p.WatchDecisions(ctx, &pb.WatchDecisionsRequest{Queue: l.Queue, JobSet: l.JobSet, JobId: l.JobID, Code: codesOf(l), Policy: l.Policy, Rule: l.Rule})
		if err == nil {
			_, err = stream.Header() // it has its position: what comes later is in the stream
		}
		if err != nil {
			return err
		}
		here := &Client{Call: func(ctx context.Context, call func(context.Context, pb.JobsClient) error) error { return call(ctx, p) }}
		among, err := query.Existing(ctx, here, l, last, visit)
		if err != nil {
			return err
		}
		for {
			if err := shown(); err != nil {
				return err
			}
			m, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return errors.New("the server ended the stream")
			}
			if err != nil {
				return err
			}
			d := &audit.Decision{}
			if err := read(m, d); err != nil {
				return err
			}
			if among(d) {
				continue
			}
			if err := visit(d); err != nil {
				return err
			}
		}
	})
}

package jobs_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/jobs"
	"github.com/refloat/refloat/internal/api/jobs/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/query"
)

// growing is a job database of one partition that has so many decisions.
type growing struct {
	jobdb.Queries
	mu  sync.Mutex
	has uint64
}

func (g *growing) add(n uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.has += n
}

func (g *growing) view(_ context.Context, read func(jobdb.Queries) error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return read(g)
}

func (g *growing) Positions() ([]jobdb.PartitionPositions, error) {
	return []jobdb.PartitionPositions{{Partition: 0}}, nil
}

func (g *growing) Decisions(f jobdb.RecordFilter, visit func(*jobdb.Decision) error) error {
	from, to := max(f.From, 1), g.has
	id := strings.Repeat("j", 4<<10)
	if f.To > 0 {
		to = min(to, f.To)
	}
	if f.Last > 0 && to > uint64(f.Last) {
		from = max(from, to-uint64(f.Last)+1)
	}
	for n := from; n <= to; n++ {
		queue := "even"
		if n%2 == 1 {
			queue = "odd"
		}
		d := &jobdb.Decision{Decision: chain.Decision{Number: n, Queue: queue, JobID: id, Code: policy.RuleRetry}}
		if err := visit(d); err != nil {
			return err
		}
	}
	return nil
}

func serve(t *testing.T, g *growing, limits jobs.Limits) pb.JobsClient {
	t.Helper()
	return servedBy(t, &jobs.Service{Source: &query.Source{Jobs: g.view}, Now: time.Now, Log: slog.New(slog.DiscardHandler), Limits: limits})
}

func servedBy(t *testing.T, answers *jobs.Service) pb.JobsClient {
	t.Helper()
	conn, err := grpc.NewClient(listen(t, answers), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return pb.NewJobsClient(conn)
}

// listen serves a service, and returns the address.
func listen(t *testing.T, answers *jobs.Service) string {
	t.Helper()
	h, err := api.Handler(&api.Service{Now: time.Now}, answers.Questions(), answers.Log)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := api.Server(h, nil)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return l.Addr().String()
}

func watch(t *testing.T, c pb.JobsClient, r *pb.WatchDecisionsRequest) grpc.ServerStreamingClient[pb.Decision] {
	t.Helper()
	stream, err := c.WatchDecisions(t.Context(), r)
	if err == nil {
		_, err = stream.Header() // it has its position now
	}
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// TestWatch: a stream has the decisions that came after it began, those that it asked for, each once and in order.
func TestWatch(t *testing.T) {
	t.Parallel()
	g := &growing{has: 7}
	c := serve(t, g, jobs.Limits{Every: time.Millisecond})
	stream := watch(t, c, &pb.WatchDecisionsRequest{Queue: "odd", Code: []string{"RuleRetry"}})
	for want := uint64(9); want < 2500; want += 2 { // more than are read in one go
		if want%500 == 9 {
			g.add(500)
		}
		d, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if d.Number != want || d.Queue != "odd" {
			t.Fatalf("decision %d of queue %s, want %d", d.Number, d.Queue, want)
		}
	}
	bad, err := c.WatchDecisions(t.Context(), &pb.WatchDecisionsRequest{Code: []string{"RuleRetri"}})
	if err == nil {
		_, err = bad.Recv()
	}
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "did you mean RuleRetry") {
		t.Errorf("a wrong code: %v", err)
	}
}

// TestWatchSlow: a client that does not read is dropped, and told why if it reads on; others do not notice.
func TestWatchSlow(t *testing.T) {
	t.Parallel()
	g := &growing{has: 1}
	c := serve(t, g, jobs.Limits{Every: time.Millisecond, Behind: 5000, Patience: time.Minute, Streams: 2})
	slow, quick := watch(t, c, &pb.WatchDecisionsRequest{}), watch(t, c, &pb.WatchDecisionsRequest{})
	third, err := c.WatchDecisions(t.Context(), &pb.WatchDecisionsRequest{})
	if err == nil {
		_, err = third.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "2 streams are open already") {
		t.Errorf("a third stream: %v", err)
	}
	for want := uint64(2); want < 16000; want++ { // 64 MB: more than any buffer on the way
		if want%1000 == 2 {
			g.add(1000)
		}
		d, err := quick.Recv()
		if err != nil || d.Number != want {
			t.Fatalf("decision %d, want %d: %v", d.GetNumber(), want, err)
		}
	}
	for err = nil; err == nil; {
		_, err = slow.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "reads too slowly") {
		t.Errorf("the slow client: %v", err)
	}
}

// TestWatchEach: a client has so many streams, and leaves room for others; what ends makes room.
func TestWatchEach(t *testing.T) {
	t.Parallel()
	c := serve(t, &growing{has: 1}, jobs.Limits{Every: time.Millisecond, Each: 2})
	as := func(user string) (context.Context, context.CancelFunc) {
		return context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), "refloat-user", user))
	}
	open := func(ctx context.Context) error {
		stream, err := c.WatchDecisions(ctx, &pb.WatchDecisionsRequest{})
		if err == nil {
			_, err = stream.Header()
		}
		return err
	}
	ann, goAway := as("ann")
	defer goAway()
	bob, leave := as("bob")
	defer leave()
	for i, who := range []context.Context{ann, ann, bob, bob} {
		if err := open(who); err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
	}
	stream, err := c.WatchDecisions(ann, &pb.WatchDecisionsRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "you have 2 streams open already") {
		t.Errorf("a third stream of ann: %v", err)
	}
	goAway()
	again(t, func() bool {
		ctx, end := as("ann")
		t.Cleanup(end)
		stream, err := c.WatchDecisions(ctx, &pb.WatchDecisionsRequest{})
		if err != nil {
			return false
		}
		md, err := stream.Header()
		return err == nil && md != nil
	})
}

// again tries something until it succeeds.
func again(t *testing.T, try func() bool) {
	t.Helper()
	tick, timeout := time.NewTicker(5*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for !try() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatal("it never succeeds")
		}
	}
}

// TestWatchUnread: a client that opens the stream over REST and reads nothing of it is dropped, which makes room.
func TestWatchUnread(t *testing.T) {
	t.Parallel()
	g := &growing{has: 1}
	s := &jobs.Service{Source: &query.Source{Jobs: g.view}, Now: time.Now, Log: slog.New(slog.DiscardHandler), Limits: jobs.Limits{Every: time.Millisecond, Patience: 200 * time.Millisecond, Streams: 1}}
	address := listen(t, s)
	open := func() net.Conn {
		conn, err := net.Dial("tcp", address) //nolint:noctx // it is closed with the test
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(conn, "GET /refloat/v1/watch/decisions HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	status := func(conn net.Conn) string {
		line, err := bufio.NewReaderSize(conn, 16).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(line)
	}
	unread := open()
	if got := status(unread); got != "HTTP/1.1 200 OK" {
		t.Fatal(got)
	}
	if got := status(open()); got != "HTTP/1.1 429 Too Many Requests" {
		t.Errorf("a second stream: %s", got)
	}
	g.add(5000) // 20 MB: more than any buffer on the way
	again(t, func() bool { return status(open()) == "HTTP/1.1 200 OK" })
}

// TestNoJobDatabase: without a job database, questions about it are refused with the flag that helps, and the others are answered.
func TestNoJobDatabase(t *testing.T) {
	t.Parallel()
	s := &jobs.Service{Now: time.Now, Log: slog.New(slog.DiscardHandler), Source: &query.Source{
		Partitions: func(context.Context) ([]query.Partition, error) {
			return []query.Partition{{Partition: 3, Here: true}}, nil
		},
	}}
	client := servedBy(t, s)
	_, err := client.ListJobs(t.Context(), &pb.ListJobsRequest{})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "--job-db URL") {
		t.Errorf("%v", err)
	}
	stream, err := client.WatchDecisions(t.Context(), &pb.WatchDecisionsRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "--job-db URL") {
		t.Errorf("a stream: %v", err)
	}
	all, err := client.ListPartitions(t.Context(), &pb.ListPartitionsRequest{})
	if err != nil || len(all.Partitions) != 1 || all.Partitions[0].Partition != 3 {
		t.Errorf("partitions: %v, %v", all, err)
	}
	if _, err := client.Verify(t.Context(), &pb.VerifyRequest{}); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), query.ErrNoLogs.Error()) {
		t.Errorf("verify, without logs: %v", err)
	}
}

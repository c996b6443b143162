// Package policysynctest stands in for the part of an Armada server that serves its retry
// policies and its queues. For tests only.
package policysynctest

import (
	"bytes"
	"crypto/tls"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// Server serves policies, in bytes built from field numbers alone.
type Server struct {
	Address string

	mu       sync.Mutex
	policies map[string][]byte
	queues   map[string][]string
	fail     error
	cut      bool
	secret   string
	reads    int
	held     chan struct{} // nil: answers are given at once
	asked    chan struct{}
	server   *grpc.Server
}

// rawCodec passes bytes through.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error { *v.(*[]byte) = slices.Clone(data); return nil }
func (rawCodec) Name() string                       { return "proto" }

// Serve starts a server without policies, on an address ("": any of this
// machine), with a certificate or (nil) without TLS.
func Serve(t testing.TB, address string, cert *tls.Certificate) *Server {
	t.Helper()
	if address == "" {
		address = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	p := &Server{Address: l.Addr().String(), policies: map[string][]byte{}, queues: map[string][]string{}, asked: make(chan struct{}, 1000)}
	options := []grpc.ServerOption{grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(p.handle)}
	if cert != nil {
		options = append(options, grpc.Creds(credentials.NewServerTLSFromCert(cert)))
	}
	p.server = grpc.NewServer(options...)
	go func() { _ = p.server.Serve(l) }()
	t.Cleanup(p.Stop)
	return p
}

// Stop stops the server: connections are refused from then on.
func (p *Server) Stop() { p.server.Stop() }

// Policy is a retry policy as Armada's own client writes it, with one rule for a
// category; more fields may follow.
func Policy(name string, limit uint64, category string, more ...[]byte) []byte {
	rule := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 2) // Retry
	rule = protowire.AppendString(protowire.AppendTag(rule, 5, protowire.BytesType), category)
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), limit)
	b = protowire.AppendVarint(protowire.AppendTag(b, 3, protowire.VarintType), 1) // Fail
	b = protowire.AppendBytes(protowire.AppendTag(b, 4, protowire.BytesType), rule)
	return append(b, bytes.Join(more, nil)...)
}

// Mutate is one more rule of a policy, which asks for another node.
func Mutate() []byte {
	affinity := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
	mutate := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), affinity)
	rule := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 2)
	rule = protowire.AppendString(protowire.AppendTag(rule, 5, protowire.BytesType), "oom")
	rule = protowire.AppendBytes(protowire.AppendTag(rule, 7, protowire.BytesType), mutate)
	return protowire.AppendBytes(protowire.AppendTag(nil, 4, protowire.BytesType), rule)
}

// Set makes policies; one without bytes is taken away, from the queues too.
func (p *Server) Set(name string, policy []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if policy != nil {
		p.policies[name] = policy
		return
	}
	delete(p.policies, name)
	for q := range p.queues {
		p.queues[q] = slices.DeleteFunc(slices.Clone(p.queues[q]), func(n string) bool { return n == name })
	}
}

// Bind says which policies a queue names; nil: the queue goes.
func (p *Server) Bind(queue string, policies []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.queues[queue] = policies; policies == nil {
		delete(p.queues, queue)
	}
}

// Fail makes every answer an error; nil: no more.
func (p *Server) Fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = err
}

// Cut leaves out the end of the list of queues.
func (p *Server) Cut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
}

// Want rejects callers without this authorization header.
func (p *Server) Want(header string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.secret = header
}

// Reads is how often policies were read.
func (p *Server) Reads() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reads
}

// Hold keeps back the next answer with policies, as they are when it is asked for. The
// first channel says that it was asked for, and closing the second lets it go.
func (p *Server) Hold() (asked <-chan struct{}, release chan<- struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = make(chan struct{})
	return p.asked, p.held
}

func (p *Server) handle(_ any, stream grpc.ServerStream) error {
	var request []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	method, _ := grpc.MethodFromServerStream(stream)
	md, _ := metadata.FromIncomingContext(stream.Context())
	p.mu.Lock()
	fail, secret := p.fail, p.secret
	p.mu.Unlock()
	switch {
	case fail != nil:
		return fail
	case secret != "" && !slices.Equal(md.Get("authorization"), []string{secret}):
		return status.Error(codes.Unauthenticated, "who are you?")
	case method == "/api.QueueService/GetQueues":
		return p.sendQueues(stream)
	case method == "/api.RetryPolicyService/GetRetryPolicies":
		return p.sendPolicies(stream)
	}
	return status.Errorf(codes.Unimplemented, "no %s here", method)
}

func (p *Server) sendQueues(stream grpc.ServerStream) error {
	p.mu.Lock()
	var answers [][]byte
	for _, name := range slices.Sorted(maps.Keys(p.queues)) {
		queue := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
		queue = protowire.AppendFixed64(protowire.AppendTag(queue, 2, protowire.Fixed64Type), 0x3ff8000000000000) // priority_factor 1.5
		queue = protowire.AppendString(protowire.AppendTag(queue, 3, protowire.BytesType), "ann")
		for _, policy := range p.queues[name] {
			queue = protowire.AppendString(protowire.AppendTag(queue, 11, protowire.BytesType), policy)
		}
		answers = append(answers, protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), queue))
	}
	if !p.cut {
		answers = append(answers, protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), nil))
	}
	p.mu.Unlock()
	for i := range answers {
		if err := stream.SendMsg(&answers[i]); err != nil {
			return err
		}
	}
	return nil
}

func (p *Server) sendPolicies(stream grpc.ServerStream) error {
	p.mu.Lock()
	var answer []byte
	for _, name := range slices.Sorted(maps.Keys(p.policies)) {
		answer = protowire.AppendBytes(protowire.AppendTag(answer, 1, protowire.BytesType), p.policies[name])
	}
	held := p.held
	p.held = nil
	p.reads++
	p.mu.Unlock()
	if held != nil {
		p.asked <- struct{}{}
		<-held
	}
	return stream.SendMsg(&answer)
}

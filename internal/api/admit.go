package api

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// call is what is known about a request before its body is read.
type call struct {
	name   string
	group  group
	verbs  []Verb                         // the caller needs at least one of them; none: any authenticated caller
	bytes  int                            // of the body, uncompressed
	values int                            // in the body: decoded, a value takes a hundred times its two bytes
	input  protoreflect.MessageDescriptor // of a gRPC request; nil: REST, or an unknown method
}

// group is a class of requests with its own concurrency limit.
type group int

const (
	reads group = iota
	changes
	bulk      // changes with large bodies
	overrides // kill, pause and resume: no other request delays them
	questions // about jobs
	streams   // of answers, which stay open
	groups
)

// atOnce returns how many requests of a group are served concurrently.
func (g group) atOnce() int {
	switch g {
	case bulk:
		return 2
	case questions:
		return 8
	case streams:
		return 64
	default:
		return 16
	}
}

// each returns how many of these one client has at most: the others are not kept waiting by whoever asks for much.
func (g group) each() int {
	switch g {
	case questions, reads:
		return g.atOnce() * 3 / 4
	default:
		return g.atOnce()
	}
}

// bodies returns how many bytes of bodies of a group are held at once: those that are still sent, that wait for a
// slot, and that are served.
func (g group) bodies() int64 {
	switch g {
	case bulk:
		return 4 * maxRequestBytes // one slot each, and a compressed one next to the uncompressed
	case changes:
		return 64 << 20
	default:
		return 8 << 20
	}
}

// budget is how many more bytes of bodies may be held.
type budget struct{ left atomic.Int64 }

// held is the part of a budget that one request holds.
type held struct {
	from  *budget
	bytes int64
}

// errBusy refuses a body at once: while it waited for others, what was read of it would keep them waiting too.
var errBusy = status.Error(codes.ResourceExhausted, "too many requests with large bodies at once: try again in a moment")

// reader counts what is read from r as held.
func (h *held) reader(r io.Reader) io.Reader { return &heldReader{r, h} }

type heldReader struct {
	io.Reader
	held *held
}

func (r *heldReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.held.bytes += int64(n)
	if r.held.from.left.Add(-int64(n)) < 0 {
		return n, errBusy
	}
	return n, err
}

// callOf identifies a request by its path and method.
func (q *Questions) callOf(r *http.Request) call {
	if q == nil || !isRPC(r) && !q.Owns(r.URL.Path) {
		return callOf(r)
	}
	c := call{name: path.Base(r.URL.Path), group: questions, verbs: []Verb{GetJobs}, bytes: 64 << 10, values: 8 << 10}
	if c.name == "WhatIf" || c.name == "whatif" { // they come with policies
		c.bytes, c.values = 2<<20, 256<<10
	}
	if !isRPC(r) {
		if strings.HasPrefix(r.URL.Path, "/refloat/v1/watch/") {
			c.group = streams
		}
		return c
	}
	service := q.File.Services().Get(0)
	name, ok := strings.CutPrefix(r.URL.Path, "/"+string(service.FullName())+"/")
	if !ok {
		return callOf(r)
	}
	c.input = inputOf(r.URL.Path)
	if m := service.Methods().ByName(protoreflect.Name(name)); m != nil && m.IsStreamingServer() {
		c.group = streams
	}
	return c
}

// callOf does the same for a request to the policy API or Armada's service.
func callOf(r *http.Request) call {
	if isRPC(r) {
		c := callNamed(path.Base(r.URL.Path))
		c.input = inputOf(r.URL.Path)
		return c
	}
	switch {
	case r.Method == http.MethodGet, r.Method == http.MethodHead:
		return callNamed("List")
	case r.Method == http.MethodDelete:
		return callNamed("Delete")
	case r.URL.Path == "/refloat/v1/apply":
		return callNamed("Apply")
	case r.URL.Path == "/refloat/v1/rollback":
		return callNamed("RollBack")
	case r.URL.Path == "/refloat/v1/orders":
		return callNamed("Order")
	case strings.HasPrefix(r.URL.Path, "/refloat/v1/brakes"):
		return callNamed("Brake")
	}
	return callNamed("Update")
}

// callNamed returns the limits of a method. The service itself checks permissions again, and precisely.
func callNamed(name string) call {
	noChange := func(v Verb) bool {
		return v == KillRetries || v == PauseRetries || v == AvoidNodes || v == OrderRetries || v == ShadowRetries || v == GetJobs
	}
	c := call{name: name, bytes: 64 << 10, values: 8 << 10}
	switch name {
	case "Brake":
		c.group, c.verbs = overrides, []Verb{KillRetries, PauseRetries, AvoidNodes}
	case "Release":
		c.group, c.verbs = overrides, []Verb{KillRetries, PauseRetries}
	case "Order":
		c.group, c.verbs = overrides, []Verb{OrderRetries}
	case "Create", "Update", "CreateRetryPolicy", "UpdateRetryPolicy":
		c.group, c.bytes, c.values = changes, 2<<20, 256<<10
	case "Delete", "DeleteRetryPolicy", "RollBack":
		c.group = changes
	case "Apply":
		c.group, c.bytes, c.values = bulk, maxRequestBytes, maxValues
	}
	if c.group == changes || c.group == bulk {
		c.verbs = slices.DeleteFunc(Verbs(), noChange)
	}
	return c
}

func isRPC(r *http.Request) bool {
	return r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

// inputOf returns the type of a gRPC method's request; nil: there is no such method.
func inputOf(fullMethod string) protoreflect.MessageDescriptor {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(fullMethod, "/"), "/", "."))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if m, ok := d.(protoreflect.MethodDescriptor); err == nil && ok {
		return m.Input()
	}
	return nil
}

// allows refuses a caller who could not make the call with any body.
func (c *call) allows(a *Auth, who Principal) error {
	if len(c.verbs) == 0 || slices.ContainsFunc(c.verbs, func(v Verb) bool { return a.mayAnywhere(who, v) == nil }) {
		return nil
	}
	return status.Errorf(codes.PermissionDenied, "%s lacks the permission for this request: it needs one of %v", who.Name, c.verbs)
}

// enter waits for a free slot of the group; leave frees it.
func (f *front) enter(ctx context.Context, g group) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, f.service.timeout())
	defer cancel()
	done, err := f.turns[g].wait(ctx, ClientOf(ctx), g.each())
	if err != nil {
		return nil, err
	}
	slots := f.slots[g]
	select {
	case slots <- struct{}{}:
		return func() { <-slots; done() }, nil
	case <-ctx.Done():
		done()
		return nil, errManyRequests
	}
}

var errManyRequests = status.Error(codes.ResourceExhausted, "too many requests at once: try again in a moment")

// read replaces the body of a request by one that is checked for size and uncompressed. What it reads is held in a
// budget, until the caller returns it.
func (c *call) read(w http.ResponseWriter, r *http.Request, held *held) error {
	limited := held.reader(http.MaxBytesReader(w, r.Body, int64(c.bytes)+frameHeader))
	var body []byte
	var err error
	if isRPC(r) {
		body, err = c.readFrame(limited, r.Header.Get("Grpc-Encoding"), held)
	} else {
		body, err = c.readJSON(limited)
	}
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return c.tooLarge("body: larger than %s", size(c.bytes))
	} else if refused := (*runtime.HTTPStatusError)(nil); errors.As(err, &refused) || errors.Is(err, errBusy) {
		return err
	} else if errors.Is(err, io.ErrUnexpectedEOF) || err != nil && status.Code(err) == codes.Unknown {
		return status.Error(codes.Canceled, "body: not read to its end")
	} else if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

func (c *call) tooLarge(format string, args ...any) error {
	err := status.Errorf(codes.ResourceExhausted, format, args...)
	if c.input != nil {
		return err
	}
	return &runtime.HTTPStatusError{HTTPStatus: http.StatusRequestEntityTooLarge, Err: err}
}

func size(bytes int) string {
	if bytes >= 1<<20 {
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%d KiB", bytes>>10)
}

func (c *call) readJSON(r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	if len(body) > c.bytes {
		return nil, c.tooLarge("body: larger than %s", size(c.bytes))
	}
	// Each value except the first follows a comma or an opening bracket.
	if bytes.Count(body, []byte(","))+bytes.Count(body, []byte("["))+bytes.Count(body, []byte("{")) > c.values {
		return nil, status.Errorf(codes.InvalidArgument, "body: more than %d values", c.values)
	}
	return body, nil
}

// frameHeader is the length of the prefix of a gRPC message: a compression flag and a length.
const frameHeader = 5

// readFrame reads the single message of a gRPC request. All methods are unary.
func (c *call) readFrame(r io.Reader, encoding string, held *held) ([]byte, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err == io.EOF {
		return nil, nil // the gRPC server reports the error
	} else if err != nil {
		return nil, err
	}
	length := int64(binary.BigEndian.Uint32(header[1:]))
	if length > int64(c.bytes) {
		return nil, c.tooLarge("message: larger than %s", size(c.bytes))
	}
	var frame bytes.Buffer
	frame.Write(header[:])
	if n, err := io.Copy(&frame, io.LimitReader(r, length)); errors.Is(err, errBusy) {
		return nil, err
	} else if err != nil || n < length {
		return nil, errors.Join(io.ErrUnexpectedEOF, err)
	}
	if header[0] != 0 {
		if encoding != "gzip" {
			return frame.Bytes(), nil // the gRPC server supports no other encoding, and reports that
		}
		unpacked, err := c.unpack(frame.Bytes()[frameHeader:], held)
		if err != nil {
			return nil, err
		}
		frame = *unpacked
	}
	message := frame.Bytes()[frameHeader:]
	if left := c.values; c.input != nil && !fits(message, c.input, &left, maxDepth) {
		return nil, status.Errorf(codes.ResourceExhausted, "message: more than %d values, or more than %d deep", c.values, maxDepth)
	}
	return frame.Bytes(), nil
}

// unpack turns a compressed message into an uncompressed frame.
func (c *call) unpack(compressed []byte, held *held) (*bytes.Buffer, error) {
	frame := bytes.NewBuffer(make([]byte, frameHeader, min(c.bytes, 8*len(compressed))+frameHeader))
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	if err == nil {
		_, err = io.Copy(frame, held.reader(io.LimitReader(z, int64(c.bytes)+1)))
	}
	if errors.Is(err, errBusy) {
		return nil, err
	}
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "message: not gzip: %v", err)
	}
	n := frame.Len() - frameHeader
	if n > c.bytes {
		return nil, c.tooLarge("message: larger than %s when it is uncompressed", size(c.bytes))
	}
	binary.BigEndian.PutUint32(frame.Bytes()[1:frameHeader], uint32(n))
	return frame, nil
}

// maxDepth limits the nesting of messages: one level of JSON takes three.
const maxDepth = 300

// fits reports whether a message has no more values than are left, and is not nested too deeply. Invalid messages
// fit: the decoder reports what is wrong.
func fits(b []byte, of protoreflect.MessageDescriptor, left *int, depth int) bool {
	for len(b) > 0 {
		number, wire, n := protowire.ConsumeTag(b)
		if n < 0 {
			return true
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(number, wire, b)
		if size < 0 {
			return true
		}
		if *left--; *left < 0 {
			return false
		}
		if field := of.Fields().ByNumber(number); field != nil && field.Message() != nil && wire == protowire.BytesType {
			inner, _ := protowire.ConsumeBytes(b)
			if depth == 0 || !fits(inner, field.Message(), left, depth-1) {
				return false
			}
		}
		b = b[size:]
	}
	return true
}

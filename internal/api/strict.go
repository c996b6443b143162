package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/suggest"
)

// Unknown fields and parameters are rejected over REST: a mistyped queue must not mean all queues, and a mistyped
// dry_run must not change anything.

// strictJSON is protobuf's JSON mapping, rejecting unknown fields.
type strictJSON struct{ runtime.JSONPb }

// newStrictJSON leaves out messages and optional fields that are not set, as `refloatctl … -o json` does.
func newStrictJSON() *strictJSON {
	return &strictJSON{runtime.JSONPb{MarshalOptions: protojson.MarshalOptions{EmitDefaultValues: true}}}
}

// NewDecoder implements runtime.Marshaler.
func (j *strictJSON) NewDecoder(r io.Reader) runtime.Decoder {
	d := runtime.DecoderWrapper{Decoder: json.NewDecoder(r), UnmarshalOptions: j.UnmarshalOptions}
	return runtime.DecoderFunc(func(v any) error {
		if err := d.Decode(v); err != nil {
			return named(err, v)
		}
		return atEnd(d.Decoder)
	})
}

// atEnd rejects what follows the first value of a body: it would be ignored.
func atEnd(d *json.Decoder) error {
	if _, err := d.Token(); err != io.EOF {
		return errors.New("the body goes on after the first JSON value: send one document")
	}
	return nil
}

// unknownIn finds the field in errors of encoding/json and of protojson, which have no
// types for it.
var unknownIn = regexp.MustCompile(`unknown field "([^"]*)"`)

// named adds the nearest name to the error about an unknown field of a message.
func named(err error, v any) error {
	m, ok := v.(proto.Message)
	if err == nil || !ok {
		return err
	}
	found := unknownIn.FindStringSubmatch(err.Error())
	if found == nil {
		return err
	}
	return unknown("field", found[1], namesIn(m.ProtoReflect().Descriptor()))
}

func unknown(what, name string, names []string) error {
	fix := "remove it"
	if len(names) > 0 {
		fix = suggest.Fix(name, names, "use "+strings.Join(names, ", "))
	}
	return fmt.Errorf("unknown %s %.60q: %s", what, name, fix)
}

// namesIn lists the JSON names of the fields of a message and of nested messages.
func namesIn(d protoreflect.MessageDescriptor) []string {
	names := map[string]bool{}
	var add func(protoreflect.MessageDescriptor)
	add = func(d protoreflect.MessageDescriptor) {
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			if names[f.JSONName()] {
				continue
			}
			names[f.JSONName()] = true
			if m := f.Message(); m != nil && m.ParentFile().Package() == d.ParentFile().Package() {
				add(m)
			}
		}
	}
	add(d)
	return slices.Sorted(maps.Keys(names))
}

// knownFields rejects a gRPC request with fields that only a newer client knows: one of them may be a dry run.
// Armada's own service ignores them.
func knownFields(method string, req any) error {
	m, ok := req.(proto.Message)
	if !ok || strings.HasPrefix(method, "/"+pb.RetryPolicyService_ServiceDesc.ServiceName+"/") || len(m.ProtoReflect().GetUnknown()) == 0 {
		return nil
	}
	return status.Error(codes.InvalidArgument, "the request has fields that this server does not know: upgrade the server, or use its version of refloatctl")
}

// onlyKnown rejects query parameters that are not fields of the request, and a body that the route does not read.
func onlyKnown(asked *Questions) runtime.Middleware {
	files := []protoreflect.FileDescriptor{pb.File_internal_api_pb_policies_proto, pb.File_internal_api_pb_armada_proto}
	if asked != nil {
		files = append(files, asked.File)
	}
	return func(next runtime.HandlerFunc) runtime.HandlerFunc { return onlyKnownIn(files, next) }
}

func onlyKnownIn(files []protoreflect.FileDescriptor, next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, path map[string]string) {
		refuse := func(text string) {
			runtime.DefaultHTTPErrorHandler(r.Context(), runtime.NewServeMux(), newStrictJSON(), w, r, status.Error(codes.InvalidArgument, text))
		}
		pattern, _ := runtime.HTTPPattern(r.Context())
		names, body := queryNames(files, r.Method, pattern.String())
		names = slices.DeleteFunc(names, func(name string) bool { _, inPath := path[name]; return inPath })
		for _, name := range slices.Sorted(maps.Keys(r.URL.Query())) {
			if !slices.Contains(names, name) {
				refuse(unknown("parameter", name, names).Error())
				return
			}
		}
		if !body {
			if n, _ := io.ReadFull(r.Body, make([]byte, 1)); n > 0 {
				refuse(r.Method + " of this path takes no body: use query parameters")
				return
			}
		}
		next(w, r, path)
	}
}

// queryNames lists the query parameters of a route: the fields of the request, in both spellings, unless they are
// in the body. It also says whether the route has a body.
func queryNames(files []protoreflect.FileDescriptor, method, pattern string) (names []string, body bool) {
	pattern = strings.ReplaceAll(pattern, "=*}", "}")
	for _, file := range files {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				m := methods.Get(j)
				main, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
				for _, rule := range append(main.GetAdditionalBindings(), main) {
					if verb, path := routeOf(rule); verb != method || path != pattern {
						continue
					}
					body = body || rule.Body != ""
					if rule.Body != "*" {
						names = append(names, fieldNames(m.Input(), rule.Body)...)
					}
				}
			}
		}
	}
	return names, body
}

func fieldNames(d protoreflect.MessageDescriptor, body string) (names []string) {
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if text := string(f.Name()); text != body {
			names = append(names, text)
			if f.JSONName() != text {
				names = append(names, f.JSONName())
			}
		}
	}
	return names
}

func routeOf(rule *annotations.HttpRule) (method, path string) {
	switch {
	case rule.GetGet() != "":
		return http.MethodGet, rule.GetGet()
	case rule.GetPost() != "":
		return http.MethodPost, rule.GetPost()
	case rule.GetPut() != "":
		return http.MethodPut, rule.GetPut()
	case rule.GetDelete() != "":
		return http.MethodDelete, rule.GetDelete()
	case rule.GetPatch() != "":
		return http.MethodPatch, rule.GetPatch()
	}
	return "", ""
}

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-openapiv3/options"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// document is the OpenAPI document of all services, relative to the root.
const document = "internal/api/openapi.json"

// about is what the document says of the whole API.
var about = &options.Document{
	Info: &options.Info{
		Title:       "Refloat",
		Description: "Policies, jobs and decisions. Unknown parameters and fields are refused.",
		Version:     "v1",
	},
	Components: &options.Components{SecuritySchemes: map[string]*options.SecurityScheme{
		"password": {Type: options.SecurityScheme_TYPE_HTTP, Scheme: "basic"},
		"token":    {Type: options.SecurityScheme_TYPE_HTTP, Scheme: "bearer"},
	}},
	Security: []*options.SecurityRequirement{
		{Schemes: map[string]*options.SecurityRequirement_Scopes{"password": {}}},
		{Schemes: map[string]*options.SecurityRequirement_Scopes{"token": {}}},
		{}, // on loopback nobody signs in
	},
}

var indentation = regexp.MustCompile(`(?m)^ +`)

// describe writes the document.
func describe(root string, services []string, all []*descriptorpb.FileDescriptorProto) error {
	files := make([]*descriptorpb.FileDescriptorProto, len(all))
	for i, f := range all {
		files[i] = asServed(f)
	}
	resp, err := plugin("protoc-gen-openapiv3", &pluginpb.CodeGeneratorRequest{FileToGenerate: services, ProtoFile: files})
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "protogen")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var parts []string
	for _, f := range resp.GetFile() {
		part := filepath.Join(dir, strings.ReplaceAll(f.GetName(), "/", "-"))
		if err := os.WriteFile(part, []byte(f.GetContent()), 0o600); err != nil {
			return err
		}
		parts = append(parts, part)
	}
	whole, err := tool(nil, "openapiv3-merge", parts...)
	if err != nil {
		return err
	}
	whole = indentation.ReplaceAll(whole, nil) // 60 kB of each program; no string in JSON has a line of its own
	return os.WriteFile(filepath.Join(root, document), whole, 0o644)
}

// asServed returns a file as the plugin has to see it. A comment behind a field becomes one
// before it, since the plugin reads no others. The values of Armada's enums get the names
// that REST answers have: Fail for RETRY_ACTION_FAIL.
func asServed(f *descriptorpb.FileDescriptorProto) *descriptorpb.FileDescriptorProto {
	f = proto.CloneOf(f)
	if f.Options == nil {
		f.Options = &descriptorpb.FileOptions{}
	}
	proto.SetExtension(f.Options, options.E_Openapiv3Document, about)
	for _, l := range f.GetSourceCodeInfo().GetLocation() {
		if l.LeadingComments == nil {
			l.LeadingComments = l.TrailingComments
		}
	}
	if f.GetPackage() != "api" {
		return f
	}
	for _, e := range f.EnumType {
		for _, v := range e.Value {
			word := v.GetName()[strings.LastIndex(v.GetName(), "_")+1:]
			v.Name = proto.String(word[:1] + strings.ToLower(word[1:]))
		}
	}
	return f
}

// Protogen compiles our .proto files and runs protoc's plugins, which write the Go code
// beside them: messages, and for services gRPC and a gateway for REST. The REST routes of
// all services together are described in one OpenAPI document. It replaces protoc, so that
// code generation needs only Go.
//
// The arguments are the root of the repository and the files, relative to it.
// Protogen runs in the tools module, whose go.mod has the versions of the plugins.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"github.com/bufbuild/protocompile/protoutil"
	_ "google.golang.org/genproto/googleapis/api/annotations" // google/api/annotations.proto
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("want a root and at least one .proto file, got %q", args)
	}
	root, names := args[0], args[1:]

	c := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(protocompile.CompositeResolver{
			&protocompile.SourceResolver{ImportPaths: []string{root}},
			protocompile.ResolverFunc(linked),
		}),
		SourceInfoMode: protocompile.SourceInfoStandard, // carries the comments over
	}
	files, err := c.Compile(context.Background(), names...)
	if err != nil {
		return err
	}
	var services []string
	for _, f := range files {
		if f.Services().Len() > 0 {
			services = append(services, f.Path())
		}
	}
	all := inOrder(files)
	for _, p := range []struct {
		plugin string
		files  []string
	}{{"protoc-gen-go", names}, {"protoc-gen-go-grpc", services}, {"protoc-gen-grpc-gateway", services}} {
		if err := generate(root, p.plugin, p.files, all); err != nil {
			return err
		}
	}
	return describe(root, services, all)
}

// linked finds files whose Go code is linked into this program.
func linked(path string) (protocompile.SearchResult, error) {
	f, err := protoregistry.GlobalFiles.FindFileByPath(path)
	return protocompile.SearchResult{Desc: f}, err
}

// generate has a plugin write its files.
func generate(root, name string, names []string, all []*descriptorpb.FileDescriptorProto) error {
	resp, err := plugin(name, &pluginpb.CodeGeneratorRequest{
		FileToGenerate: names,
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      all,
	})
	if err != nil {
		return err
	}
	for _, f := range resp.GetFile() {
		if err := os.WriteFile(filepath.Join(root, f.GetName()), []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// inOrder returns the files and all they import, each after what it imports,
// as plugins want them.
func inOrder(files linker.Files) []*descriptorpb.FileDescriptorProto {
	var out []*descriptorpb.FileDescriptorProto
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		out = append(out, protoutil.ProtoFromFileDescriptor(f))
	}
	for _, f := range files {
		add(f)
	}
	return out
}

func plugin(name string, req *pluginpb.CodeGeneratorRequest) (*pluginpb.CodeGeneratorResponse, error) {
	in, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	out, err := tool(in, name)
	if err != nil {
		return nil, err
	}
	resp := new(pluginpb.CodeGeneratorResponse)
	if err := proto.Unmarshal(out, resp); err != nil {
		return nil, fmt.Errorf("the answer of %s: %w", name, err)
	}
	if resp.Error != nil {
		return nil, fmt.Errorf("%s: %s", name, resp.GetError())
	}
	return resp, nil
}

// tool runs a program of the tools module and returns what it prints.
func tool(in []byte, name string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", append([]string{"tool", name}, args...)...)
	cmd.Stdin = bytes.NewReader(in)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return out, nil
}

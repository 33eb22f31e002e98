// Protogen generates the Go code of .proto files, beside them. It compiles the
// files itself and runs the plugins that the go.mod here pins, so that the same
// source gives the same code everywhere and nothing needs to be installed.
//
// Each file begins with the checksum of its source, by which a test finds out
// that one was changed without the other.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: protogen FILE.proto...")
		os.Exit(2)
	}
	for _, source := range os.Args[1:] {
		if err := generate(source); err != nil {
			fmt.Fprintln(os.Stderr, "protogen:", err)
			os.Exit(1)
		}
	}
}

func generate(source string) error {
	dir, name := filepath.Split(source)
	raw, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	header := fmt.Appendf(nil, "// %s sha256:%x\n\n", name, sha256.Sum256(raw))
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{dir}}),
		SourceInfoMode: protocompile.SourceInfoStandard, // for the comments
	}
	files, err := compiler.Compile(context.Background(), name)
	if err != nil {
		return err
	}
	request, err := proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{name},
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      withImports(nil, files[0]),
	})
	if err != nil {
		return err
	}
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := run(plugin, request, dir, header); err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
	}
	return nil
}

// withImports appends a file to all, after those that it imports, each once.
func withImports(all []*descriptorpb.FileDescriptorProto, file protoreflect.FileDescriptor) []*descriptorpb.FileDescriptorProto {
	if slices.ContainsFunc(all, func(f *descriptorpb.FileDescriptorProto) bool { return f.GetName() == file.Path() }) {
		return all
	}
	imports := file.Imports()
	for i := range imports.Len() {
		all = withImports(all, imports.Get(i).FileDescriptor)
	}
	return append(all, protoutil.ProtoFromFileDescriptor(file))
}

// run gives a request to a plugin and writes the files it returns.
func run(plugin string, request []byte, dir string, header []byte) error {
	command := exec.Command("go", "tool", plugin)
	command.Stdin = bytes.NewReader(request)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return fmt.Errorf("%s", response.GetError())
	}
	for _, f := range response.File {
		content := append(bytes.Clone(header), f.GetContent()...)
		if err := os.WriteFile(filepath.Join(dir, f.GetName()), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

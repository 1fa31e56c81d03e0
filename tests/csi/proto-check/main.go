// Command proto-check compares a compiled csi.proto with the official one of the version in go.mod.
//
// It reads a FileDescriptorSet on standard input and lists every difference in names, numbers, types, labels, oneofs,
// enum values and methods. Comments, options and reserved ranges are not compared.
package main

import (
	"fmt"
	"io"
	"os"
	"sort"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

func main() {
	ours, err := read(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "proto-check:", err)
		os.Exit(2)
	}
	want, have := describe(csi.File_csi_proto), describe(ours)
	differences := compare(want, have)
	for _, line := range differences {
		fmt.Println(line)
	}
	if len(differences) > 0 {
		fmt.Fprintf(os.Stderr, "proto-check: %d differences from the official csi.proto\n", len(differences))
		os.Exit(1)
	}
	fmt.Printf("csi.proto agrees with the official one in %d declarations\n", len(want))
}

func read(from io.Reader) (protoreflect.FileDescriptor, error) {
	raw, err := io.ReadAll(from)
	if err != nil {
		return nil, err
	}
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(raw, set); err != nil {
		return nil, err
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return nil, err
	}
	return files.FindFileByPath("csi.proto")
}

// describe maps each declaration's name to everything that matters on the wire or in generated code.
func describe(file protoreflect.FileDescriptor) map[string]string {
	all := map[string]string{"package": string(file.Package()), "syntax": file.Syntax().String()}
	for i := 0; i < file.Services().Len(); i++ {
		service := file.Services().Get(i)
		all[string(service.FullName())] = "service"
		for j := 0; j < service.Methods().Len(); j++ {
			m := service.Methods().Get(j)
			all[string(m.FullName())] = fmt.Sprintf("rpc(%s%s) returns (%s%s)",
				stream(m.IsStreamingClient()), m.Input().FullName(), stream(m.IsStreamingServer()), m.Output().FullName())
		}
	}
	enums(file.Enums(), all)
	messages(file.Messages(), all)
	return all
}

func stream(is bool) string {
	if is {
		return "stream "
	}
	return ""
}

func enums(list protoreflect.EnumDescriptors, all map[string]string) {
	for i := 0; i < list.Len(); i++ {
		enum := list.Get(i)
		all[string(enum.FullName())] = "enum"
		for j := 0; j < enum.Values().Len(); j++ {
			value := enum.Values().Get(j)
			all[fmt.Sprintf("%s:%s", enum.FullName(), value.Name())] = fmt.Sprint(value.Number())
		}
	}
}

func messages(list protoreflect.MessageDescriptors, all map[string]string) {
	for i := 0; i < list.Len(); i++ {
		message := list.Get(i)
		all[string(message.FullName())] = fmt.Sprintf("message, map entry %t", message.IsMapEntry())
		enums(message.Enums(), all)
		messages(message.Messages(), all)
		for j := 0; j < message.Oneofs().Len(); j++ {
			all[string(message.Oneofs().Get(j).FullName())+" (oneof)"] = "oneof"
		}
		for j := 0; j < message.Fields().Len(); j++ {
			all[string(message.Fields().Get(j).FullName())] = field(message.Fields().Get(j))
		}
	}
}

func field(f protoreflect.FieldDescriptor) string {
	parts := []string{fmt.Sprint(f.Number()), f.Cardinality().String(), f.Kind().String()}
	if f.Message() != nil {
		parts = append(parts, string(f.Message().FullName()))
	}
	if f.Enum() != nil {
		parts = append(parts, string(f.Enum().FullName()))
	}
	if f.ContainingOneof() != nil {
		parts = append(parts, "in", string(f.ContainingOneof().Name()))
	}
	parts = append(parts, fmt.Sprintf("json %s, presence %t, packed %t", f.JSONName(), f.HasPresence(), f.IsPacked()))
	return strings.Join(parts, " ")
}

func compare(want, have map[string]string) []string {
	var lines []string
	for name, value := range want {
		switch ours, ok := have[name]; {
		case !ok:
			lines = append(lines, fmt.Sprintf("%s: missing, official: %s", name, value))
		case ours != value:
			lines = append(lines, fmt.Sprintf("%s: %s, official: %s", name, ours, value))
		}
	}
	for name, value := range have {
		if _, ok := want[name]; !ok {
			lines = append(lines, fmt.Sprintf("%s: %s, officially absent", name, value))
		}
	}
	sort.Strings(lines)
	return lines
}

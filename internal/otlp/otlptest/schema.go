package otlptest

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// schema is what OpenTelemetry publishes of the messages (opentelemetry-proto 1.9), as
// far as there are traces in it: the number, the name, the type, and whether it is
// repeated.
const schema = `
ExportTraceServiceRequest
1 resource_spans ResourceSpans *
ResourceSpans
1 resource Resource
2 scope_spans ScopeSpans *
3 schema_url string
Resource
1 attributes KeyValue *
2 dropped_attributes_count uint32
ScopeSpans
1 scope InstrumentationScope
2 spans Span *
3 schema_url string
InstrumentationScope
1 name string
2 version string
3 attributes KeyValue *
4 dropped_attributes_count uint32
Span
1 trace_id bytes
2 span_id bytes
3 trace_state string
4 parent_span_id bytes
5 name string
6 kind uint32
7 start_time_unix_nano fixed64
8 end_time_unix_nano fixed64
9 attributes KeyValue *
10 dropped_attributes_count uint32
13 links Link *
14 dropped_links_count uint32
15 status Status
16 flags fixed32
Link
1 trace_id bytes
2 span_id bytes
3 trace_state string
4 attributes KeyValue *
5 dropped_attributes_count uint32
6 flags fixed32
Status
2 message string
3 code uint32
KeyValue
1 key string
2 value AnyValue
AnyValue
1 string_value string
2 bool_value bool
3 int_value int64
4 double_value double
`

var kinds = map[string]descriptorpb.FieldDescriptorProto_Type{
	"string": descriptorpb.FieldDescriptorProto_TYPE_STRING, "bytes": descriptorpb.FieldDescriptorProto_TYPE_BYTES,
	"uint32": descriptorpb.FieldDescriptorProto_TYPE_UINT32, "int64": descriptorpb.FieldDescriptorProto_TYPE_INT64,
	"fixed32": descriptorpb.FieldDescriptorProto_TYPE_FIXED32, "fixed64": descriptorpb.FieldDescriptorProto_TYPE_FIXED64,
	"bool": descriptorpb.FieldDescriptorProto_TYPE_BOOL, "double": descriptorpb.FieldDescriptorProto_TYPE_DOUBLE,
}

// descriptor returns that of the message that exports spans.
func descriptor() (protoreflect.MessageDescriptor, error) {
	file := &descriptorpb.FileDescriptorProto{Name: new("trace.proto"), Package: new("otlp"), Syntax: new("proto3")}
	for line := range strings.SplitSeq(strings.TrimSpace(schema), "\n") {
		words := strings.Fields(line)
		if len(words) == 1 {
			file.MessageType = append(file.MessageType, &descriptorpb.DescriptorProto{Name: &words[0]})
			continue
		}
		f := &descriptorpb.FieldDescriptorProto{Name: &words[1], Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
		if _, err := fmt.Sscan(words[0], newNumber(f)); err != nil {
			return nil, err
		}
		if len(words) == 4 {
			f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
		}
		if kind, ok := kinds[words[2]]; ok {
			f.Type = kind.Enum()
		} else {
			f.Type, f.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), new(".otlp."+words[2])
		}
		m := file.MessageType[len(file.MessageType)-1]
		m.Field = append(m.Field, f)
	}
	d, err := protodesc.NewFile(file, nil)
	if err != nil {
		return nil, err
	}
	return d.Messages().ByName("ExportTraceServiceRequest"), nil
}

func newNumber(f *descriptorpb.FieldDescriptorProto) *int32 {
	f.Number = new(int32)
	return f.Number
}

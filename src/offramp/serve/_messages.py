"""Messages of the Open Inference Protocol, version 2, over gRPC: the fields and numbers of its specification."""

from typing import Any

from offramp.errors import MissingExtraError

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
except ImportError as error:
    raise MissingExtraError("gRPC needs grpcio and protobuf", hint="pip install 'offramp[serve]'") from error

__all__ = ["CONTENTS", "MESSAGES", "METHODS", "SERVICE"]

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"
METHODS = ("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer")
"""Methods; each takes the message of its name and `Request`, and returns that of its name and `Response`."""

CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""Fields of `InferTensorContents` by datatype; FP16 has none and is sent as raw contents."""

NAMED = "1 string name, 2 string version"
TENSOR = "1 string name, 2 string datatype, 3 int64* shape"
FIELDS = {
    "InferParameter": "1 bool bool_param, 2 int64 int64_param, 3 string string_param, 4 double double_param, "
    "5 uint64 uint64_param",
    "InferTensorContents": "1 bool* bool_contents, 2 int32* int_contents, 3 int64* int64_contents, "
    "4 uint32* uint_contents, 5 uint64* uint64_contents, 6 float* fp32_contents, 7 double* fp64_contents, "
    "8 bytes* bytes_contents",
    "Parameter": "1 string key, 2 InferParameter value",
    "TensorMetadata": TENSOR,
    "InputTensor": f"{TENSOR}, 4 Parameter* parameters, 5 InferTensorContents contents",
    "OutputTensor": f"{TENSOR}, 4 Parameter* parameters, 5 InferTensorContents contents",
    "RequestedOutput": "1 string name, 2 Parameter* parameters",
    "ServerLiveRequest": "",
    "ServerLiveResponse": "1 bool live",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "1 bool ready",
    "ModelReadyRequest": NAMED,
    "ModelReadyResponse": "1 bool ready",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": f"{NAMED}, 3 string* extensions",
    "ModelMetadataRequest": NAMED,
    "ModelMetadataResponse": "1 string name, 2 string* versions, 3 string platform, 4 TensorMetadata* inputs, "
    "5 TensorMetadata* outputs",
    "ModelInferRequest": "1 string model_name, 2 string model_version, 3 string id, 4 Parameter* parameters, "
    "5 InputTensor* inputs, 6 RequestedOutput* outputs, 7 bytes* raw_input_contents",
    "ModelInferResponse": "1 string model_name, 2 string model_version, 3 string id, 4 Parameter* parameters, "
    "5 OutputTensor* outputs, 6 bytes* raw_output_contents",
}
"""Fields by message: number, type (`*` if repeated) and name. A map is a list of keys and values on the wire."""


def _make_messages() -> dict[str, Any]:
    """Return the classes of the messages by name.

    They live in a pool of their own: a client library in the same process may have its own messages of these names.
    """
    field_type = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="offramp/inference.proto", package=PACKAGE, syntax="proto3")
    for name, fields in FIELDS.items():
        message = file.message_type.add(name=name)
        for text in filter(None, fields.split(", ")):
            number, kind, field_name = text.split()
            label = field_type.LABEL_REPEATED if kind.endswith("*") else field_type.LABEL_OPTIONAL
            field = message.field.add(name=field_name, number=int(number), label=label)
            kind = kind.rstrip("*")
            if kind in FIELDS:
                field.type, field.type_name = field_type.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
            else:
                field.type = field_type.Type.Value(f"TYPE_{kind.upper()}")
            if name == "InferParameter":
                field.oneof_index = 0
    file.message_type[0].oneof_decl.add(name="parameter_choice")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in FIELDS}


MESSAGES = _make_messages()
"""Classes of the messages by name."""

"""The protocol's gRPC messages (package `inference`, service `GRPCInferenceService`), made from the table of its fields.

They live in a pool of their own: a process may hold another library's copy of the same messages.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

from rheostat.errors import MissingExtra

SERVICE = "inference.GRPCInferenceService"
_TENSOR = "name=1:string datatype=2:string shape=3:int64*"
_TABLE = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "live=1:bool",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "ready=1:bool",
    "ModelReadyRequest": "name=1:string version=2:string",
    "ModelReadyResponse": "ready=1:bool",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "name=1:string version=2:string extensions=3:string*",
    "ModelMetadataRequest": "name=1:string version=2:string",
    "ModelMetadataResponse": "name=1:string versions=2:string* platform=3:string "
    "inputs=4:ModelMetadataResponse.TensorMetadata* outputs=5:ModelMetadataResponse.TensorMetadata*",
    "ModelMetadataResponse.TensorMetadata": _TENSOR,
    "InferParameter": "bool_param=1:bool? int64_param=2:int64? string_param=3:string? double_param=4:double? "
    "uint64_param=5:uint64?",
    "InferTensorContents": "bool_contents=1:bool* int_contents=2:int32* int64_contents=3:int64* uint_contents=4:uint32* "
    "uint64_contents=5:uint64* fp32_contents=6:float* fp64_contents=7:double* bytes_contents=8:bytes*",
    "ModelInferRequest": "model_name=1:string model_version=2:string id=3:string parameters=4:InferParameter% "
    "inputs=5:ModelInferRequest.InferInputTensor* outputs=6:ModelInferRequest.InferRequestedOutputTensor* "
    "raw_input_contents=7:bytes*",
    "ModelInferRequest.InferInputTensor": f"{_TENSOR} parameters=4:InferParameter% contents=5:InferTensorContents",
    "ModelInferRequest.InferRequestedOutputTensor": "name=1:string parameters=2:InferParameter%",
    "ModelInferResponse": "model_name=1:string model_version=2:string id=3:string parameters=4:InferParameter% "
    "outputs=5:ModelInferResponse.InferOutputTensor* raw_output_contents=6:bytes*",
    "ModelInferResponse.InferOutputTensor": f"{_TENSOR} parameters=4:InferParameter% contents=5:InferTensorContents",
    "RepositoryModelLoadRequest": "repository_name=1:string model_name=2:string parameters=3:InferParameter%",
    "RepositoryModelLoadResponse": "",
    "RepositoryModelUnloadRequest": "repository_name=1:string model_name=2:string parameters=3:InferParameter%",
    "RepositoryModelUnloadResponse": "",
}
"""By message: `name=number:type`, with `*` for a list, `%` for a map from text, `?` for one of a choice."""


@cache
def messages() -> Any:
    """Return the message classes as attributes (`messages().ModelInferRequest`).

    Raises:
        MissingExtra: protobuf is not installed.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise MissingExtra("the Open Inference Protocol over gRPC", "grpc") from None
    file = descriptor_pb2.FileDescriptorProto(name="rheostat/inference.proto", package="inference", syntax="proto3")
    made: dict[str, Any] = {}
    for full, fields in _TABLE.items():
        outer, _, name = full.rpartition(".")
        message = made[outer].nested_type.add(name=name) if outer else file.message_type.add(name=name)
        made[full] = message
        for field in fields.split():
            _add(message, full, field)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    classes = {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"inference.{name}"))
        for name in _TABLE
        if "." not in name
    }
    return SimpleNamespace(**classes)


def _add(message: Any, full: str, field: str) -> None:
    name, _, rest = field.partition("=")
    number, _, kind = rest.partition(":")
    mark = kind[-1] if kind[-1] in "*%?" else ""
    kind = kind.removesuffix(mark)
    if mark == "%":
        entry_name = "".join(part.capitalize() for part in name.split("_")) + "Entry"
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        _add(entry, full, "key=1:string")
        _add(entry, full, f"value=2:{kind}")
        kind, mark = f"{full}.{entry_name}", "*"
    made = message.field.add(name=name, number=int(number), label=3 if mark == "*" else 1)  # LABEL_REPEATED, _OPTIONAL
    scalar = f"TYPE_{kind.upper()}"
    types = type(made).DESCRIPTOR.fields_by_name["type"].enum_type.values_by_name
    if kind[0].islower():
        made.type = types[scalar].number
    else:
        made.type = types["TYPE_MESSAGE"].number
        made.type_name = f".inference.{kind}"
    if mark == "?":
        if not message.oneof_decl:
            message.oneof_decl.add(name="parameter_choice")
        made.oneof_index = 0

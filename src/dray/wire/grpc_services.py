"""The services of agents and drivers, made at import from the descriptors of `protos/`.

Theory of operation: `make protos` compiles the `.proto` files to descriptors; this module reads them into a
pool of its own, so that no other user of a message of the same name in the process is in the way, and no
version of a code generator ties us down. A service is the table of its methods: from it come the stub that
calls and the handler that serves.

Rules for this file: what a message means is said in its `.proto` file; nothing here knows what is in one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from dray.errors import DrayError

ProtobufMessage = Any
"""A protobuf message; its class has the fields of its `.proto` file."""


def _load_pool() -> Any:
    content = resources.files("dray.wire").joinpath("kubelet.fds").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(content).file:
        pool.Add(file)
    return pool


_POOL: Final = _load_pool()


def get_message_class(name: str) -> Any:
    """The class of a message, by its full name: `pluginregistration.PluginInfo`."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(name))


@dataclass(frozen=True, slots=True)
class GrpcMethod:
    """One call of a service."""

    name: str
    path: str
    request: Any
    response: Any
    is_streaming: bool
    """Whether the answer is a stream of messages."""


@dataclass(frozen=True, slots=True)
class GrpcService:
    """A service: its full name and its methods."""

    name: str
    methods: Mapping[str, GrpcMethod]

    @property
    def package(self) -> str:
        return self.name.rpartition(".")[0]

    def get_message_class(self, name: str) -> Any:
        """The class of a message that is described beside this service."""
        return get_message_class(f"{self.package}.{name}")


def _find_service(name: str) -> GrpcService:
    found = _POOL.FindServiceByName(name)
    streams = descriptor_pb2.ServiceDescriptorProto()
    found.CopyToProto(streams)
    methods = {
        each.name: GrpcMethod(
            each.name,
            f"/{name}/{each.name}",
            message_factory.GetMessageClass(each.input_type),
            message_factory.GetMessageClass(each.output_type),
            written.server_streaming,
        )
        for each, written in zip(found.methods, streams.method, strict=True)
    }
    return GrpcService(name, MappingProxyType(methods))


REGISTRATION: Final = _find_service("pluginregistration.Registration")
DRA_V1: Final = _find_service("k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin")
DRA_V1BETA1: Final = _find_service("k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin")
HEALTH_V1: Final = _find_service("v1.DRAResourceHealth")
HEALTH_V1BETA1: Final = _find_service("v1beta1.DRAResourceHealth")
HEALTH_V1ALPHA1: Final = _find_service("v1alpha1.DRAResourceHealth")
CLASSIC_V1ALPHA1: Final = _find_service("cdi.k8s.io.v1alpha1.ResourcePlugin")

DRA_PLUGIN: Final = "DRAPlugin"
RESOURCE_PLUGIN: Final = "ResourcePlugin"
"""Types of plugins in a registration."""

OFFERED_SERVICES: Final[Mapping[str, GrpcService]] = MappingProxyType(
    {
        "v1.DRAPlugin": DRA_V1,
        "v1beta1.DRAPlugin": DRA_V1BETA1,
        "v1.DRAResourceHealth": HEALTH_V1,
        "v1beta1.DRAResourceHealth": HEALTH_V1BETA1,
        "v1alpha1.DRAResourceHealth": HEALTH_V1ALPHA1,
        "v1alpha1.ResourcePlugin": CLASSIC_V1ALPHA1,
    }
)
"""Services by the name under which a registration offers them, in the order in which they are preferred."""


class RpcStatusError(DrayError):
    """An answer that is a code of gRPC and a text, raised by whoever answers."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class UnreadableReplyError(DrayError):
    """A reply that is no message of its kind."""


UnaryMethod = Callable[[ProtobufMessage], Awaitable[ProtobufMessage]]
StreamMethod = Callable[[ProtobufMessage], AsyncIterator[ProtobufMessage]]


class GrpcStub:
    """Calls the methods of a service over a channel."""

    def __init__(self, channel: Any, service: GrpcService) -> None:
        self.service = service
        self._calls = {
            method.name: (channel.unary_stream if method.is_streaming else channel.unary_unary)(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=partial(_decode_message, method.response),
            )
            for method in service.methods.values()
        }

    async def call(self, method: str, request: ProtobufMessage, *, timeout: float) -> ProtobufMessage:
        """The reply; `grpc.aio.AioRpcError` if none, `UnreadableReplyError` if it is malformed."""
        answer = await self._calls[method](request, timeout=timeout)
        if answer is None:
            raise UnreadableReplyError(
                f"the reply to {method} is no {self.service.methods[method].response.DESCRIPTOR.name}"
            )
        return answer

    def stream(self, method: str, request: ProtobufMessage) -> AsyncIterator[ProtobufMessage]:
        """The messages of an answer, for as long as they come; None for one that is nonsense."""
        messages: AsyncIterator[ProtobufMessage] = self._calls[method](request)
        return messages


def _decode_message(message_class: Any, content: bytes) -> ProtobufMessage | None:
    """A message; None when it is none, as gRPC does too, but without a word about it to standard error."""
    try:
        return message_class.FromString(content)
    except DecodeError:
        return None


def build_rpc_handler(service: GrpcService, implementations: Mapping[str, UnaryMethod | StreamMethod]) -> Any:
    """What a gRPC server needs to answer a service; methods without an answer are `Unimplemented`."""
    handlers = {}
    for name, answer in implementations.items():
        method = service.methods[name]
        make = (
            grpc.unary_stream_rpc_method_handler
            if method.is_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        handlers[name] = make(
            _wrap_stream(answer, method) if method.is_streaming else _wrap_unary(answer, method),
            request_deserializer=partial(_decode_message, method.request),
            response_serializer=method.response.SerializeToString,
        )
    return grpc.method_handlers_generic_handler(service.name, handlers)


def _wrap_unary(answer: Any, method: GrpcMethod) -> Any:
    async def answered(request: ProtobufMessage | None, context: Any) -> ProtobufMessage:
        await _abort_if_unreadable(request, method, context)
        try:
            return await answer(request)
        except RpcStatusError as declined:
            await context.abort(declined.code, str(declined))

    return answered


def _wrap_stream(answer: Any, method: GrpcMethod) -> Any:
    async def streamed(request: ProtobufMessage | None, context: Any) -> AsyncIterator[ProtobufMessage]:
        await _abort_if_unreadable(request, method, context)
        async for each in answer(request):
            yield each

    return streamed


async def _abort_if_unreadable(request: ProtobufMessage | None, method: GrpcMethod, context: Any) -> None:
    """End a call whose request is nonsense: that is the fault of whoever calls, and no surprise to us."""
    if request is None:
        what = f"the request of {method.name} is no {method.request.DESCRIPTOR.name}"
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, what)

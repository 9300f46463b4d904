"""gRPC services between node agents and drivers, built at import from the descriptors of `protos/`.

Theory of operation: `make protos` compiles the `.proto` files to a descriptor set, which this module loads. A
service is the table of its methods; `GrpcStub` calls them and `build_rpc_handler` serves them. The `.proto`
files document the messages; this module does not look into any of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf import descriptor_pb2, message_factory

from dray.errors import DrayError
from dray.wire import protobuf
from dray.wire.protobuf import ProtobufMessage, decode_message

_POOL: Final = protobuf.load_pool(resources.files("dray.wire").joinpath("kubelet.fds").read_bytes())


def get_message_class(name: str) -> Any:
    """Return the class of a message, by its full name: `pluginregistration.PluginInfo`."""
    return protobuf.get_message_class(_POOL, name)


@dataclass(frozen=True, slots=True)
class GrpcMethod:
    """One method of a service."""

    name: str
    path: str
    request: Any
    response: Any
    is_streaming: bool
    """Whether the response is a stream of messages."""


@dataclass(frozen=True, slots=True)
class GrpcService:
    """A service: its full name and its methods."""

    name: str
    methods: Mapping[str, GrpcMethod]

    @property
    def package(self) -> str:
        return self.name.rpartition(".")[0]

    def get_message_class(self, name: str) -> Any:
        """Return the class of a message in the package of this service."""
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
    """A gRPC status that a method answers with: a code and a text."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class UnreadableReplyError(DrayError):
    """A reply that does not decode to the response of its method."""


_remaining_seconds: Final[ContextVar[float | None]] = ContextVar("remaining_seconds", default=None)


def get_remaining_seconds() -> float | None:
    """Return how long the caller of the method that runs waited for at its start; None without a deadline."""
    return _remaining_seconds.get()


UnaryMethod = Callable[[ProtobufMessage], Awaitable[ProtobufMessage]]
StreamMethod = Callable[[ProtobufMessage], AsyncIterator[ProtobufMessage]]
BlockingMethod = Callable[[ProtobufMessage], ProtobufMessage]


class GrpcStub:
    """Calls the methods of a service over a channel."""

    def __init__(self, channel: Any, service: GrpcService) -> None:
        self.service = service
        self._calls = {
            method.name: (channel.unary_stream if method.is_streaming else channel.unary_unary)(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=partial(decode_message, method.response),
            )
            for method in service.methods.values()
        }

    async def call(self, method: str, request: ProtobufMessage, *, timeout: float) -> ProtobufMessage:
        """Call a method; raises `grpc.aio.AioRpcError`, or `UnreadableReplyError` for a malformed reply."""
        answer = await self._calls[method](request, timeout=timeout)
        if answer is None:
            raise UnreadableReplyError(
                f"the reply to {method} is no {self.service.methods[method].response.DESCRIPTOR.name}"
            )
        return answer

    def stream(self, method: str, request: ProtobufMessage) -> AsyncIterator[ProtobufMessage]:
        """Call a streaming method and yield its messages; None stands for a malformed one."""
        messages: AsyncIterator[ProtobufMessage] = self._calls[method](request)
        return messages


def build_rpc_handler(service: GrpcService, implementations: Mapping[str, UnaryMethod | StreamMethod]) -> Any:
    """Build the handler of a service for a gRPC server; methods not implemented are `Unimplemented`."""
    handlers = {}
    for name, implementation in implementations.items():
        method = service.methods[name]
        make = (
            grpc.unary_stream_rpc_method_handler
            if method.is_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        handlers[name] = make(
            _wrap_stream(implementation, method)
            if method.is_streaming
            else _wrap_unary(implementation, method),
            request_deserializer=partial(decode_message, method.request),
            response_serializer=method.response.SerializeToString,
        )
    return grpc.method_handlers_generic_handler(service.name, handlers)


def build_blocking_rpc_handler(service: GrpcService, implementations: Mapping[str, BlockingMethod]) -> Any:
    """Build the handler of a service for a gRPC server with threads, which answers a malformed request with
    `Internal` by itself. Its methods must not be streams.
    """
    handlers = {}
    for name, implementation in implementations.items():
        method = service.methods[name]
        handlers[name] = grpc.unary_unary_rpc_method_handler(
            _drop_context(implementation),
            request_deserializer=partial(decode_message, method.request),
            response_serializer=method.response.SerializeToString,
        )
    return grpc.method_handlers_generic_handler(service.name, handlers)


def _drop_context(implementation: BlockingMethod) -> Any:
    return lambda request, _context: implementation(request)


def _wrap_unary(implementation: Any, method: GrpcMethod) -> Any:
    async def answer_unary(request: ProtobufMessage | None, context: Any) -> ProtobufMessage:
        await _abort_if_unreadable(request, method, context)
        _remaining_seconds.set(
            context.time_remaining()
        )  # every call has a task, and so a context, of its own
        try:
            return await implementation(request)
        except RpcStatusError as declined:
            await context.abort(declined.code, str(declined))

    return answer_unary


def _wrap_stream(implementation: Any, method: GrpcMethod) -> Any:
    async def answer_stream(request: ProtobufMessage | None, context: Any) -> AsyncIterator[ProtobufMessage]:
        await _abort_if_unreadable(request, method, context)
        async for each in implementation(request):
            yield each

    return answer_stream


async def _abort_if_unreadable(request: ProtobufMessage | None, method: GrpcMethod, context: Any) -> None:
    """Abort a call whose request is malformed with `InvalidArgument`."""
    if request is None:
        what = f"the request of {method.name} is no {method.request.DESCRIPTOR.name}"
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, what)

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

Message = Any
"""A protobuf message; its class has the fields of its `.proto` file."""


def _pool() -> Any:
    content = resources.files("dray.wire").joinpath("kubelet.fds").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(content).file:
        pool.Add(file)
    return pool


_POOL: Final = _pool()


def message(name: str) -> Any:
    """The class of a message, by its full name: `pluginregistration.PluginInfo`."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(name))


@dataclass(frozen=True, slots=True)
class Method:
    """One call of a service."""

    name: str
    path: str
    request: Any
    response: Any
    streams: bool
    """Whether the answer is a stream of messages."""


@dataclass(frozen=True, slots=True)
class Service:
    """A service: its full name and its methods."""

    name: str
    methods: Mapping[str, Method]

    @property
    def package(self) -> str:
        return self.name.rpartition(".")[0]

    def message(self, name: str) -> Any:
        """The class of a message that is described beside this service."""
        return message(f"{self.package}.{name}")


def _service(name: str) -> Service:
    found = _POOL.FindServiceByName(name)
    streams = descriptor_pb2.ServiceDescriptorProto()
    found.CopyToProto(streams)
    methods = {
        each.name: Method(
            each.name,
            f"/{name}/{each.name}",
            message_factory.GetMessageClass(each.input_type),
            message_factory.GetMessageClass(each.output_type),
            written.server_streaming,
        )
        for each, written in zip(found.methods, streams.method, strict=True)
    }
    return Service(name, MappingProxyType(methods))


REGISTRATION: Final = _service("pluginregistration.Registration")
DRA_V1: Final = _service("k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin")
DRA_V1BETA1: Final = _service("k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin")
HEALTH_V1: Final = _service("v1.DRAResourceHealth")
HEALTH_V1BETA1: Final = _service("v1beta1.DRAResourceHealth")
HEALTH_V1ALPHA1: Final = _service("v1alpha1.DRAResourceHealth")
CLASSIC: Final = _service("cdi.k8s.io.v1alpha1.ResourcePlugin")

DRA_PLUGIN: Final = "DRAPlugin"
RESOURCE_PLUGIN: Final = "ResourcePlugin"
"""Types of plugins in a registration."""

OFFERED: Final[Mapping[str, Service]] = MappingProxyType(
    {
        "v1.DRAPlugin": DRA_V1,
        "v1beta1.DRAPlugin": DRA_V1BETA1,
        "v1.DRAResourceHealth": HEALTH_V1,
        "v1beta1.DRAResourceHealth": HEALTH_V1BETA1,
        "v1alpha1.DRAResourceHealth": HEALTH_V1ALPHA1,
        "v1alpha1.ResourcePlugin": CLASSIC,
    }
)
"""Services by the name under which a registration offers them, in the order in which they are preferred."""


class Declined(DrayError):  # noqa: N818 - what is the case
    """An answer that is a code of gRPC and a text, raised by whoever answers."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class Unreadable(DrayError):  # noqa: N818 - what is the case
    """A reply that is no message of its kind."""


Answering = Callable[[Message], Awaitable[Message]]
Streaming = Callable[[Message], AsyncIterator[Message]]


class Stub:
    """Calls the methods of a service over a channel."""

    def __init__(self, channel: Any, service: Service) -> None:
        self.service = service
        self._calls = {
            method.name: (channel.unary_stream if method.streams else channel.unary_unary)(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=partial(_read, method.response),
            )
            for method in service.methods.values()
        }

    async def call(self, method: str, request: Message, *, timeout: float) -> Message:
        """The answer; `grpc.aio.AioRpcError` when there is none, `Unreadable` when it is nonsense."""
        answer = await self._calls[method](request, timeout=timeout)
        if answer is None:
            raise Unreadable(
                f"the reply to {method} is no {self.service.methods[method].response.DESCRIPTOR.name}"
            )
        return answer

    def stream(self, method: str, request: Message) -> AsyncIterator[Message]:
        """The messages of an answer, for as long as they come; None for one that is nonsense."""
        messages: AsyncIterator[Message] = self._calls[method](request)
        return messages


def _read(made: Any, content: bytes) -> Message | None:
    """A message; None when it is none, as gRPC does too, but without a word about it to standard error."""
    try:
        return made.FromString(content)
    except DecodeError:
        return None


def handler(service: Service, answers: Mapping[str, Answering | Streaming]) -> Any:
    """What a gRPC server needs to answer a service; methods without an answer are `Unimplemented`."""
    handlers = {}
    for name, answer in answers.items():
        method = service.methods[name]
        make = grpc.unary_stream_rpc_method_handler if method.streams else grpc.unary_unary_rpc_method_handler
        handlers[name] = make(
            _streaming(answer, method) if method.streams else _answering(answer, method),
            request_deserializer=partial(_read, method.request),
            response_serializer=method.response.SerializeToString,
        )
    return grpc.method_handlers_generic_handler(service.name, handlers)


def _answering(answer: Any, method: Method) -> Any:
    async def answered(request: Message | None, context: Any) -> Message:
        await _readable(request, method, context)
        try:
            return await answer(request)
        except Declined as declined:
            await context.abort(declined.code, str(declined))

    return answered


def _streaming(answer: Any, method: Method) -> Any:
    async def streamed(request: Message | None, context: Any) -> AsyncIterator[Message]:
        await _readable(request, method, context)
        async for each in answer(request):
            yield each

    return streamed


async def _readable(request: Message | None, method: Method, context: Any) -> None:
    """End a call whose request is nonsense: that is the fault of whoever calls, and no surprise to us."""
    if request is None:
        what = f"the request of {method.name} is no {method.request.DESCRIPTOR.name}"
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, what)

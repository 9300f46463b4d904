"""gRPC services: compiled from the `.proto` files, with the field numbers of Kubernetes."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from importlib import resources
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

from dray.wire import grpc_services, unix_sockets
from dray.wire.grpc_services import (
    OFFERED_SERVICES,
    GrpcService,
    GrpcStub,
    build_rpc_handler,
    get_message_class,
)
from tests.e2e import plain_messages

PROTOS = Path(str(resources.files("dray.wire"))) / "protos"
TIMEOUT = 30.0


def test_the_descriptors_are_compiled_from_the_files_beside_them(tmp_path: Path) -> None:
    out = tmp_path / "fresh.fds"
    files = sorted(path.name for path in PROTOS.glob("*.proto"))
    assert protoc.main(["protoc", f"-I{PROTOS}", f"--descriptor_set_out={out}", *files]) == 0
    kept = resources.files("dray.wire").joinpath("kubelet.fds").read_bytes()
    fresh = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    assert descriptor_pb2.FileDescriptorSet.FromString(kept) == fresh, "`make protos` was not run"


def numbers(name: str) -> dict[str, int]:
    return {field.name: field.number for field in get_message_class(name).DESCRIPTOR.fields}


@pytest.mark.req("K3063-137", "K3063-138", "K3063-147")
def test_the_classic_protocol_has_the_numbers_of_its_proposal() -> None:
    package = "cdi.k8s.io.v1alpha1"
    assert grpc_services.CLASSIC_V1ALPHA1.name == f"{package}.ResourcePlugin"
    assert numbers(f"{package}.NodePrepareResourceRequest") == {"resource_uid": 1}
    assert numbers(f"{package}.NodePrepareResourceResponse") == {"cdi_device": 1}
    assert numbers(f"{package}.NodeUnprepareResourceRequest") == {"resource_uid": 1, "cdi_device": 2}
    assert numbers(f"{package}.NodeUnprepareResourceResponse") == {}
    assert get_message_class(f"{package}.NodePrepareResourceResponse")(
        cdi_device=["a/b=c"]
    ).SerializeToString() == (b"\x0a\x05a/b=c")


@pytest.mark.req("K3063-139")
def test_a_device_of_the_runtime_interface_carries_cdi_names() -> None:
    device = get_message_class("runtime.v1.Device")
    assert numbers("runtime.v1.Device") == {
        "container_path": 1,
        "host_path": 2,
        "permissions": 3,
        "cdi_device": 4,
    }
    assert device.DESCRIPTOR.fields_by_name["cdi_device"].is_repeated
    assert device(cdi_device=["a/b=c", "a/b=d"]).SerializeToString() == b"\x22\x05a/b=c\x22\x05a/b=d"


@pytest.mark.parametrize(
    ("name", "service"),
    [
        ("pluginregistration.Registration", grpc_services.REGISTRATION),
        ("k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin", grpc_services.DRA_V1),
        ("k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin", grpc_services.DRA_V1BETA1),
        ("v1.DRAResourceHealth", grpc_services.HEALTH_V1),
        ("v1beta1.DRAResourceHealth", grpc_services.HEALTH_V1BETA1),
        ("cdi.k8s.io.v1alpha1.ResourcePlugin", grpc_services.CLASSIC_V1ALPHA1),
    ],
)
def test_messages_have_the_names_and_numbers_that_kubernetes_published(
    name: str, service: GrpcService
) -> None:
    assert service.name == name
    for method in service.methods.values():
        assert method.path == f"/{name}/{method.name}"
        for ours, theirs in zip(
            (method.request, method.response), plain_messages.METHODS[method.name], strict=True
        ):
            assert shape(ours) == shape(plain_messages.message(name, theirs))


def shape(made: Any) -> Any:
    """Return the names, numbers and wire types of a message and its fields."""
    return made.DESCRIPTOR.name, [
        (
            field.name,
            field.number,
            field.is_repeated,
            shape(_Of(field.message_type)) if field.message_type else _WIRE.get(field.type, field.type),
        )
        for field in made.DESCRIPTOR.fields
    ]


class _Of:
    def __init__(self, descriptor: Any) -> None:
        self.DESCRIPTOR = descriptor


_FIELD = descriptor_pb2.FieldDescriptorProto
_WIRE = {_FIELD.TYPE_ENUM: "number", _FIELD.TYPE_INT64: "number"}


def test_services_are_offered_by_version_and_the_best_come_first() -> None:
    assert list(OFFERED_SERVICES) == [
        "v1.DRAPlugin",
        "v1beta1.DRAPlugin",
        "v1.DRAResourceHealth",
        "v1beta1.DRAResourceHealth",
        "v1alpha1.DRAResourceHealth",
        "v1alpha1.ResourcePlugin",
    ]
    assert {service.name.rpartition(".")[2] for service in OFFERED_SERVICES.values()} == {
        name.partition(".")[2] for name in OFFERED_SERVICES
    }


async def _prepare(request: Any) -> Any:
    reply = grpc_services.DRA_V1.get_message_class("NodePrepareResourcesResponse")()
    for claim in request.claims:
        device = reply.claims[claim.uid].devices.add(pool_name=claim.namespace, device_name=claim.name)
        device.request_names.extend(["a", "b/c"])
    return reply


async def _watch(_request: Any) -> AsyncIterator[Any]:
    for name in ("one", "two"):
        reply = grpc_services.HEALTH_V1.get_message_class("NodeWatchResourcesResponse")()
        reply.devices.add(device={"device_name": name}, health="UNHEALTHY", last_updated_time=2**40)
        yield reply


async def _nonsense(_request: bytes, _context: Any) -> bytes:
    return b"\xff\xff"


class _Served:
    """A server at a socket, and a channel to it."""

    async def __aenter__(self) -> Any:
        self._folder = tempfile.TemporaryDirectory(prefix="dray-")
        path = Path(self._folder.name) / "x.sock"
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers(
            [
                build_rpc_handler(grpc_services.DRA_V1, {"NodePrepareResources": _prepare}),
                build_rpc_handler(grpc_services.HEALTH_V1, {"NodeWatchResources": _watch}),
                grpc.method_handlers_generic_handler(
                    "nonsense.Service", {"GetInfo": grpc.unary_unary_rpc_method_handler(_nonsense)}
                ),
            ]
        )
        self._server.add_insecure_port(unix_sockets.format_grpc_target(path))
        await self._server.start()
        self._channel = unix_sockets.open_channel(path)
        return self._channel

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()
        await self._server.stop(None)
        self._folder.cleanup()


def test_calls_over_a_socket_are_answered() -> None:
    async def run() -> None:
        async with _Served() as channel:
            stub = GrpcStub(channel, grpc_services.DRA_V1)
            request = grpc_services.DRA_V1.get_message_class("NodePrepareResourcesRequest")()
            request.claims.add(namespace="n", name="c", uid="u")
            reply = await stub.call("NodePrepareResources", request, timeout=TIMEOUT)
            (device,) = reply.claims["u"].devices
            assert (device.pool_name, device.device_name, list(device.request_names)) == (
                "n",
                "c",
                ["a", "b/c"],
            )

    asyncio.run(run())


def test_what_is_streamed_arrives_one_after_the_other() -> None:
    async def run() -> None:
        async with _Served() as channel:
            request = grpc_services.HEALTH_V1.get_message_class("NodeWatchResourcesRequest")()
            replies = [
                each
                async for each in GrpcStub(channel, grpc_services.HEALTH_V1).stream(
                    "NodeWatchResources", request
                )
            ]
            devices = [each for reply in replies for each in reply.devices]
            assert [(each.device.device_name, each.health, each.last_updated_time) for each in devices] == [
                ("one", 2, 2**40),
                ("two", 2, 2**40),
            ]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("service", "method"),
    [(grpc_services.DRA_V1BETA1, "NodePrepareResources"), (grpc_services.DRA_V1, "NodeUnprepareResources")],
)
def test_methods_without_an_implementation_are_unimplemented(service: GrpcService, method: str) -> None:
    async def run() -> None:
        async with _Served() as channel:
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await GrpcStub(channel, service).call(
                    method, service.methods[method].request(), timeout=TIMEOUT
                )
            assert failed.value.code() == grpc.StatusCode.UNIMPLEMENTED

    asyncio.run(run())


def test_a_malformed_reply_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    async def run() -> None:
        async with _Served() as channel:
            method = grpc_services.REGISTRATION.methods["GetInfo"]
            made = grpc_services.GrpcMethod(
                "GetInfo", "/nonsense.Service/GetInfo", method.request, method.response, False
            )
            stub = GrpcStub(channel, GrpcService("nonsense.Service", {"GetInfo": made}))
            with pytest.raises(
                grpc_services.UnreadableReplyError, match="the reply to GetInfo is no PluginInfo"
            ):
                await stub.call("GetInfo", method.request(), timeout=TIMEOUT)

    asyncio.run(run())
    # The gRPC library may write lines of its own when a connection ends; the reply must not add one.
    assert "Traceback" not in (printed := capfd.readouterr().err)
    assert "GetInfo" not in printed


def test_other_users_of_the_same_names_are_not_in_the_way() -> None:
    """Messages are in a pool of their own, so a process may have a generated module of the same proto."""
    from google.protobuf import descriptor_pool

    file = descriptor_pb2.FileDescriptorProto(
        name="other.proto", package="pluginregistration", syntax="proto3"
    )
    file.message_type.add(name="PluginInfo")
    descriptor_pool.Default().Add(file)
    assert len(get_message_class("pluginregistration.PluginInfo").DESCRIPTOR.fields) == 4

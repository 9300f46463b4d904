"""A driver over real sockets that records its calls, and fails them in the ways that the protocol has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from dray.wire import grpc_services, unix_sockets
from dray.wire.grpc_services import DRA_V1, REGISTRATION
from tests.unit.node.kubelet_calls import Call


class RecordingDriver:
    """A driver `rec-NAME` with a registration socket and one of its own."""

    def __init__(self, short_name: str, registry: Path, plugins: Path) -> None:
        self.name = f"rec-{short_name}.example.com"
        self.calls: list[Call] = []
        self.seconds: dict[str, list[float]] = {}
        """How long its calls had left when they came."""
        self.fails: dict[str, str] = {}
        """How a verb ends: `refused`, `omitted`, `failed`, or `hangs` until it is released."""
        self.released = asyncio.Event()
        self.before_unprepare: Callable[[], Awaitable[None]] | None = None
        self._paths = (registry / f"{self.name}-reg.sock", plugins / f"{self.name}.sock")
        self._servers: list[Any] = []

    async def start(self) -> None:
        registration, endpoint = self._paths
        for path, service, methods in (
            (endpoint, DRA_V1, {"NodePrepareResources": "prepare", "NodeUnprepareResources": "unprepare"}),
            (registration, REGISTRATION, {"GetInfo": "info", "NotifyRegistrationStatus": "registered"}),
        ):
            server = grpc.aio.server()
            server.add_generic_rpc_handlers((self._build_handler(service, methods),))
            server.add_insecure_port(unix_sockets.format_grpc_target(path))
            await server.start()
            self._servers.append(server)

    async def stop(self) -> None:
        for server in self._servers:
            await server.stop(None)

    @property
    def is_registered(self) -> bool:
        return any(call.verb == "registered" for call in self.calls)

    def _build_handler(self, service: grpc_services.GrpcService, methods: dict[str, str]) -> Any:
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                self._build_method(service, name, verb),
                request_deserializer=service.methods[name].request.FromString,
                response_serializer=service.methods[name].response.SerializeToString,
            )
            for name, verb in methods.items()
        }
        return grpc.method_handlers_generic_handler(service.name, handlers)

    def _build_method(self, service: grpc_services.GrpcService, name: str, verb: str) -> Any:
        async def answer(request: Any, context: Any) -> Any:
            self.seconds.setdefault(verb, []).append(context.time_remaining())
            claims = tuple(sorted(claim.name for claim in getattr(request, "claims", ())))
            place = len(self.calls)
            self.calls.append(Call(verb, claims, "under way"))
            reply = service.methods[name].response()
            try:
                outcome = await self._answer(verb, request, reply)
            except asyncio.CancelledError:
                self.calls[place] = Call(verb, claims, "cancelled")
                raise
            self.calls[place] = Call(verb, claims, outcome)
            if outcome == "failed":
                await context.abort(grpc.StatusCode.UNKNOWN, "the whole call fails")
            return reply

        return answer

    async def _answer(self, verb: str, request: Any, reply: Any) -> str:
        if verb == "info":
            reply.type, reply.name, reply.endpoint = grpc_services.DRA_PLUGIN, self.name, str(self._paths[1])
            reply.supported_versions.append("v1.DRAPlugin")
            return ""
        if verb == "registered":
            return "" if request.plugin_registered else "failed"
        if verb == "unprepare" and self.before_unprepare is not None:
            await self.before_unprepare()
        outcome = self.fails.get(verb, "")
        if outcome == "hangs":
            await self.released.wait()
            outcome = ""
        for claim in request.claims if outcome != "omitted" else ():
            reply.claims[claim.uid].error = "not now" if outcome == "refused" else ""
            if verb == "prepare" and not outcome:
                reply.claims[claim.uid].devices.add(
                    request_names=["gpu"], pool_name="node-a", device_name=f"dev-{claim.name}"
                )
        return outcome

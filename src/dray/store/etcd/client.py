"""The client of etcd: several members, one of them in use, another one when it fails.

Theory of operation: each member has a channel that reconnects by itself with backoff. A request goes to the
active member; when that one does not answer, requests that change nothing go to the next, until a time-out. A
write is sent once: after a broken connection its outcome is unknown, and a second attempt could find the
result of the first and report a conflict. Requests require a leader, so a member without one refuses at once;
such a refusal is certain, and then a write may go to the next member, too.

Errors of grpc do not leave this module; callers get a `StoreError`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec

from dray.store.errors import (
    CompactedError,
    FutureRevisionError,
    OutcomeUnknownError,
    StoreError,
    StoreUnreachableError,
    TxnTooLargeError,
)
from dray.store.etcd.messages import CLASSES, METHODS, PACKAGE

CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Two stores in one process must not share a connection: closing one would break the other.
    ("grpc.use_local_subchannel_pool", 1),
)
INITIAL_BACKOFF, MAX_BACKOFF = 0.05, 1.0
TLS_FAILURES = ("handshake failed", "TSI_")
"""Parts of messages about TLS. An etcd that refuses the certificate of a client may say so only after the
handshake; gRPC then reports that it could not decrypt the answer.
"""
REQUIRE_LEADER = (("hasleader", "true"),)


class EtcdTlsFiles(msgspec.Struct, frozen=True):
    """Files for TLS; without a CA the system's are used, without a certificate the client presents none."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


class EtcdClient:
    """Calls etcd through whichever member answers."""

    def __init__(self, endpoints: Sequence[str], tls: EtcdTlsFiles | None, timeout: float) -> None:
        self.endpoints = tuple(endpoints)
        self._timeout = timeout
        self._channels = [_open_channel(endpoint, tls) for endpoint in self.endpoints]
        self._calls = [_build_calls(channel) for channel in self._channels]
        self._active_member = 0

    async def call_idempotent(self, method: str, request: Any) -> Any:
        """Make a call that changes nothing, or may safely be made twice."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        pause = INITIAL_BACKOFF
        while True:
            left = deadline - loop.time()
            # One silent member must not use up the time meant for all.
            share = max(left / 2, 0.1) if len(self._channels) > 1 else max(left, 0.1)
            using = self._active_member
            try:
                return await self._call(method, request, share)
            except grpc.aio.AioRpcError as error:
                # The certificates of a single member do not become valid by waiting.
                hopeless = len(self._channels) == 1 and _is_tls_failure(error.details() or "")
                if not _is_member_failure(error) or hopeless or deadline - loop.time() <= pause:
                    raise self.translate_error(error, request) from error
            self.switch_member(using)
            await asyncio.sleep(pause)
            pause = min(pause * 2, MAX_BACKOFF)

    async def call_once(self, method: str, request: Any) -> Any:
        """Make a call that changes something: sent once, to a member that is reachable and has a leader."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        pause = INITIAL_BACKOFF
        while True:
            if not self._is_connected():
                await self.call_idempotent("Status", CLASSES["StatusRequest"]())
            using = self._active_member
            try:
                return await self._call(method, request, self._timeout)
            except grpc.aio.AioRpcError as error:
                if not _is_member_failure(error):
                    raise self.translate_error(error, request) from error
                self.switch_member(using)
                if not _is_leader_missing(error):
                    raise self._build_unknown_outcome(error) from error
                if deadline - loop.time() <= pause:
                    raise self.translate_error(error, request) from error
            await asyncio.sleep(pause)
            pause = min(pause * 2, MAX_BACKOFF)

    def open_stream(self, method: str) -> Any:
        """Open a bidirectional stream that ends when the member has no leader."""
        _, request, response = METHODS[method]
        call = self._channels[self._active_member].stream_stream(
            _build_method_path(method),
            request_serializer=CLASSES[request].SerializeToString,
            response_deserializer=CLASSES[response].FromString,
        )
        return call(metadata=REQUIRE_LEADER)

    @property
    def active_member(self) -> int:
        """The index of the member in use."""
        return self._active_member

    def switch_member(self, from_member: int) -> None:
        """Switch to the next member, unless another call already did."""
        if self._active_member == from_member:
            self._active_member = (from_member + 1) % len(self._channels)

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()

    def translate_error(self, error: Any, request: Any) -> StoreError:
        """Translate an error of etcd to an error of the store."""
        text = error.details() or ""
        revision = getattr(request, "revision", 0)
        if "has been compacted" in text:
            return CompactedError(revision)
        if "future revision" in text:
            return FutureRevisionError(revision)
        if "too many operations" in text or "request is too large" in text:
            return TxnTooLargeError(
                f"etcd refused the transaction: {text}; raise its `--max-txn-ops` or `--max-request-bytes`"
            )
        advice = "check the address, and that etcd runs there"
        if _is_tls_failure(text):
            advice = "check the certificate that etcd shows, and `ca`, `cert` and `key` of the address"
        return StoreUnreachableError(
            f"no answer from etcd at `{','.join(self.endpoints)}`: {_extract_cause(error)}; {advice}"
        )

    def _is_connected(self) -> bool:
        ready = grpc.ChannelConnectivity.READY
        return bool(self._channels[self._active_member].get_state(try_to_connect=True) == ready)

    async def _call(self, method: str, request: Any, timeout: float) -> Any:
        # A member without a leader answers its own status, too.
        metadata = None if method == "Status" else REQUIRE_LEADER
        return await self._calls[self._active_member][method](request, timeout=timeout, metadata=metadata)

    def _build_unknown_outcome(self, error: Any) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"etcd at `{','.join(self.endpoints)}` broke off during a write: {_extract_cause(error)};"
            " it is unknown whether the write happened"
        )


def _open_channel(endpoint: str, tls: EtcdTlsFiles | None) -> Any:
    if tls is None:
        return grpc.aio.insecure_channel(endpoint, options=CHANNEL_OPTIONS)
    files = (tls.ca, tls.key, tls.certificate)
    credentials = grpc.ssl_channel_credentials(*(file.read_bytes() if file else None for file in files))
    return grpc.aio.secure_channel(endpoint, credentials, options=CHANNEL_OPTIONS)


def _build_calls(channel: Any) -> dict[str, Any]:
    """Build the unary calls."""
    return {
        method: channel.unary_unary(
            _build_method_path(method),
            request_serializer=CLASSES[asks].SerializeToString,
            response_deserializer=CLASSES[answers].FromString,
        )
        for method, (_, asks, answers) in METHODS.items()
        if method != "Watch"
    }


def _build_method_path(method: str) -> str:
    return f"/{PACKAGE}.{METHODS[method][0]}/{method}"


def _is_tls_failure(text: str) -> bool:
    return any(part in text for part in TLS_FAILURES)


def _is_member_failure(error: Any) -> bool:
    """Return whether the member, and not the request, is at fault."""
    return error.code() in (
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
    )


def _is_leader_missing(error: Any) -> bool:
    """Return whether the member refused before it did anything."""
    return "no leader" in (error.details() or "")


def _extract_cause(error: Any) -> str:
    """Return the last clause of an error of grpc, which names the reason."""
    text: str = error.details() or str(error.code())
    return text.rpartition("last error: ")[2].removeprefix("UNKNOWN: ").rstrip(".; ")

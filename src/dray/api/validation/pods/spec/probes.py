"""Validation of probes and lifecycle hooks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from dray.api.fields import FieldPath, forbidden, invalid, not_supported, required
from dray.api.validation.field_rules import FieldErrors
from dray.api.validation.pods.document_fields import (
    Document,
    find_mapping,
    find_number,
    find_text,
    get_number,
    get_text,
    iterate_objects,
)
from dray.api.validation.pods.value_rules import (
    validate_choice,
    validate_given_choice,
    validate_not_negative,
    validate_port_number,
    validate_port_reference,
)

HandlerRule: TypeAlias = Callable[[Document, FieldPath, int], FieldErrors]

PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
HOOKS: Final = (*PROBES, "lifecycle")
"""The fields of a container that have something called by the node."""

_COUNTS: Final = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)
_SCHEMES: Final = ("HTTP", "HTTPS")
_HEADER_NAME = re.compile(r"[-A-Za-z0-9]+")


def validate_hooks(
    container: Document, grace_period: int, os_name: str | None, path: FieldPath
) -> FieldErrors:
    """Check the lifecycle hooks and probes of a container."""
    lifecycle = find_mapping(container, "lifecycle")
    if lifecycle is not None:
        yield from _validate_lifecycle(lifecycle, grace_period, os_name, path.child("lifecycle"))
    for name in PROBES:
        probe = find_mapping(container, name)
        if probe is not None:
            yield from _validate_probe(probe, name, grace_period, path.child(name))


def _validate_probe(probe: Document, name: str, grace_period: int, path: FieldPath) -> FieldErrors:
    yield from _validate_handler(probe, _PROBE_HANDLERS, grace_period, path)
    yield from validate_not_negative(probe, _COUNTS, path)
    grace = find_number(probe, "terminationGracePeriodSeconds")
    if grace is not None and grace <= 0:
        yield invalid(path.child("terminationGracePeriodSeconds"), grace, "must be greater than 0")
    if name == "readinessProbe":
        if grace is not None:
            text = "may not be set for a readiness probe, which never ends a container"
            yield invalid(path.child("terminationGracePeriodSeconds"), grace, text)
    elif (get_number(probe, "successThreshold") or 1) != 1:
        yield invalid(path.child("successThreshold"), probe["successThreshold"], "must be 1")


def _validate_lifecycle(
    lifecycle: Document, grace_period: int, os_name: str | None, path: FieldPath
) -> FieldErrors:
    for name in ("postStart", "preStop"):
        hook = find_mapping(lifecycle, name)
        if hook is not None:
            yield from _validate_handler(hook, _HOOK_HANDLERS, grace_period, path.child(name))
    signal = find_text(lifecycle, "stopSignal")
    if signal is None:
        return
    if os_name is None:
        yield forbidden(path.child("stopSignal"), "may not be set without `spec.os.name`")
    elif signal not in _STOP_SIGNALS.get(os_name, (signal,)):
        yield not_supported(path.child("stopSignal"), signal, _STOP_SIGNALS[os_name])


_LINUX_SIGNALS: Final = re.findall(
    r"\w+",
    """
    ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR QUIT SEGV STKFLT STOP SYS
    TERM TRAP TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ RTMIN RTMAX
    """,
)
_STOP_SIGNALS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "windows": ("SIGKILL", "SIGTERM"),
        "linux": (
            *(f"SIG{name}" for name in _LINUX_SIGNALS),
            *(f"SIGRTMIN+{number}" for number in range(1, 16)),
            *(f"SIGRTMAX-{number}" for number in range(1, 15)),
        ),
    }
)


# --- handlers ---


def _validate_handler(
    holder: Document, handlers: Mapping[str, HandlerRule], grace_period: int, path: FieldPath
) -> FieldErrors:
    """Check that there is one handler, and that one; further ones are refused unseen."""
    given = [name for name in handlers if find_mapping(holder, name) is not None]
    if not given:
        yield required(path, f"must have one of {', '.join(f'`{name}`' for name in handlers)}")
        return
    first, *others = given
    yield from handlers[first](holder[first], path.child(first), grace_period)
    for name in others:
        yield forbidden(path.child(name), f"may not be set beside `{first}`")


def _validate_exec(handler: Document, path: FieldPath, _grace: int) -> FieldErrors:
    if not handler.get("command"):
        yield required(path.child("command"))


def _validate_http(handler: Document, path: FieldPath, _grace: int) -> FieldErrors:
    yield from validate_port_reference(handler.get("port"), path.child("port"))
    yield from validate_choice(handler, "scheme", _SCHEMES, path)
    for _, header in iterate_objects(handler, "httpHeaders"):
        name = get_text(header, "name")
        if not _HEADER_NAME.fullmatch(name):
            text = "must consist of letters, digits and '-', such as `X-Header-Name`"
            yield invalid(path.child("httpHeaders"), name, text)
    yield from _validate_http_protocol(handler, path)


def _validate_http_protocol(handler: Document, path: FieldPath) -> FieldErrors:
    protocol = find_text(handler, "protocol")
    if protocol is None:
        return
    if protocol not in ("HTTP1", "HTTP2"):
        yield not_supported(path.child("protocol"), protocol, ("HTTP1", "HTTP2"))
    elif protocol == "HTTP2" and get_text(handler, "scheme") not in ("", "HTTP"):
        yield invalid(path.child("protocol"), protocol, "needs the scheme `HTTP`")
    elif protocol == "HTTP2" and get_text(handler, "host"):
        yield invalid(path.child("host"), get_text(handler, "host"), "must be empty for the protocol `HTTP2`")


def _validate_tcp(handler: Document, path: FieldPath, _grace: int) -> FieldErrors:
    return validate_port_reference(handler.get("port"), path.child("port"))


def _validate_grpc(handler: Document, path: FieldPath, _grace: int) -> FieldErrors:
    yield from validate_port_number(get_number(handler, "port"), path.child("port"))
    yield from validate_given_choice(handler, "mode", ("Plaintext", "TLS"), path)


def _validate_sleep(handler: Document, path: FieldPath, grace_period: int) -> FieldErrors:
    seconds = get_number(handler, "seconds")
    if not 0 <= seconds <= grace_period:
        text = f"must be between 0 and the grace period of the pod, which is {grace_period}"
        yield invalid(path, seconds, text)


_PROBE_HANDLERS: Final[Mapping[str, HandlerRule]] = MappingProxyType(
    {
        "exec": _validate_exec,
        "httpGet": _validate_http,
        "tcpSocket": _validate_tcp,
        "grpc": _validate_grpc,
    }
)
_HOOK_HANDLERS: Final[Mapping[str, HandlerRule]] = MappingProxyType(
    {
        "exec": _validate_exec,
        "httpGet": _validate_http,
        "tcpSocket": _validate_tcp,
        "sleep": _validate_sleep,
    }
)

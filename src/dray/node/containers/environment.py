"""What a container runs and with which variables, worked out from the pod's document.

Theory of operation: variables come from `envFrom` in order, then from `env` in order; later ones win.
`$(NAME)` in a value stands for a variable that was defined before it, in `command` and `args` for any; `$$`
is a dollar sign, and a name that nobody defined stays as it is written. What a pod asks for and cannot be
found is a `ConfigProblem` with the field: the container waits until somebody puts it right.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dray.api.decode_report import json_name
from dray.errors import DrayError, InputError
from dray.values.quantity import Quantity

Lookup = Callable[[str, str], Awaitable[Mapping[str, Any] | None]]
"""Kind (`ConfigMap` or `Secret`) and name in the pod's namespace, to the document or None."""

_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^)]*)\))")
_ENTRY: Final = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")
_FIELDS: Final = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
    "metadata.uid": ("metadata", "uid"),
    "spec.nodeName": ("spec", "nodeName"),
    "spec.serviceAccountName": ("spec", "serviceAccountName"),
    "status.hostIP": ("status", "hostIP"),
    "status.podIP": ("status", "podIP"),
}
_LISTS: Final = {"status.hostIPs": "hostIPs", "status.podIPs": "podIPs"}
_KEYS: Final = {"configMapKeyRef": "ConfigMap", "secretKeyRef": "Secret"}
_WHOLE: Final = {"configMapRef": "ConfigMap", "secretRef": "Secret"}
_AMOUNTS: Final = ("cpu", "memory", "ephemeral-storage")


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """Why a container cannot be configured; it waits with `CreateContainerConfigError`."""

    path: str
    detail: str

    @property
    def message(self) -> str:
        return f"{self.path}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a container runs, ready to be launched."""

    command: tuple[str, ...]
    args: tuple[str, ...]
    env: Mapping[str, str]
    working_dir: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a pod's variables may ask of the node."""

    allocatable: Mapping[str, str] = field(default_factory=dict)
    """What stands for limits that a container does not have."""
    given: Mapping[str, str] = field(default_factory=dict)
    """Variables that every container has, such as those of services."""


class _Wrong(Exception):  # noqa: N818 - what is the case
    """A problem on its way out."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(detail)
        self.problem = ConfigProblem(path, detail)


async def resolve(
    pod: Mapping[str, Any], place: str, lookup: Lookup, around: Surroundings | None = None
) -> Resolved | ConfigProblem:
    """Work out one container of a pod; `place` is its field path, for example `spec.initContainers[0]`."""
    reading = _Reading(pod, place, lookup, around or Surroundings())
    try:
        return await reading.resolved()
    except _Wrong as wrong:
        return wrong.problem


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """A text with `$(NAME)` replaced."""

    def meant(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return variables.get(found[1], found[0])

    return _REFERENCE.sub(meant, text)


def container_at(pod: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """The container at a field path."""
    _, rest = place.split(".", 1)
    kind, _, number = rest.rstrip("]").partition("[")
    found: Mapping[str, Any] = pod["spec"][kind][int(number)]
    return found


class _Reading:
    """One container being worked out; each object is looked up once."""

    def __init__(self, pod: Mapping[str, Any], place: str, lookup: Lookup, around: Surroundings) -> None:
        self._pod = pod
        self._place = place
        self._container = container_at(pod, place)
        self._lookup = lookup
        self._around = around
        self._found: dict[tuple[str, str], Mapping[str, Any] | None] = {}

    async def resolved(self) -> Resolved:
        variables = dict(self._around.given)
        for position, source in enumerate(self._list("envFrom")):
            place = f"{self._place}.envFrom[{position}]"
            variables |= await self._whole(_object(source, place), place)
        for position, each in enumerate(self._list("env")):
            place = f"{self._place}.env[{position}]"
            entry = _object(each, place)
            if entry.get("valueFrom"):
                source = _object(entry["valueFrom"], f"{place}.valueFrom")
                value = await self._value_from(source, f"{place}.valueFrom")
            else:
                value = expanded(_plain(entry.get("value") or "", place), variables)
            if value is not None:
                variables[_plain(entry.get("name", ""), f"{place}.name")] = _plain(value, place)
        return Resolved(
            command=self._words("command", variables),
            args=self._words("args", variables),
            env=variables,
            working_dir=_plain(self._container.get("workingDir") or "", f"{self._place}.workingDir"),
        )

    def _list(self, name: str) -> Sequence[Any]:
        found = self._container.get(name) or ()
        if not isinstance(found, list | tuple):
            raise _Wrong(f"{self._place}.{name}", f"expected a list, got {json_name(found)}")
        return found

    def _words(self, name: str, variables: Mapping[str, str]) -> tuple[str, ...]:
        places = ((word, f"{self._place}.{name}[{at}]") for at, word in enumerate(self._list(name)))
        return tuple(_plain(expanded(_plain(word, place), variables), place) for word, place in places)

    async def _whole(self, source: Mapping[str, Any], place: str) -> dict[str, str]:
        for name, kind in _WHOLE.items():
            reference = _object(source.get(name) or {}, f"{place}.{name}")
            if reference:
                entries = await self._entries(kind, reference, f"{place}.{name}")
                prefix = source.get("prefix") or ""
                # A key that can be no variable is passed over, as it is everywhere.
                return {
                    prefix + key: value
                    for key, value in (entries or {}).items()
                    if not set("=\0") & set(key) and "\0" not in value
                }
        raise _Wrong(place, f"expected one of {', '.join(_WHOLE)}")

    async def _value_from(self, source: Mapping[str, Any], place: str) -> str | None:
        if source.get("fieldRef"):
            path = _object(source["fieldRef"], f"{place}.fieldRef").get("fieldPath", "")
            return self._field(_plain(path, place), f"{place}.fieldRef.fieldPath")
        if source.get("resourceFieldRef"):
            place = f"{place}.resourceFieldRef"
            return self._amount(_object(source["resourceFieldRef"], place), place)
        for name, kind in _KEYS.items():
            reference = _object(source.get(name) or {}, f"{place}.{name}")
            if reference:
                return await self._entry(kind, reference, f"{place}.{name}")
        expected = ", ".join(("fieldRef", "resourceFieldRef", *_KEYS))
        raise _Wrong(place, f"expected one of {expected}")

    def _field(self, path: str, place: str) -> str:
        entry = _ENTRY.fullmatch(path)
        if entry:
            metadata = self._pod.get("metadata") or {}
            return str((metadata.get(entry[1]) or {}).get(entry[2], ""))
        if path in _LISTS:
            rows = (self._pod.get("status") or {}).get(_LISTS[path]) or ()
            return ",".join(str(row.get("ip", "")) for row in rows if isinstance(row, Mapping))
        if path not in _FIELDS:
            known = ", ".join((*_FIELDS, *_LISTS, "metadata.labels['KEY']", "metadata.annotations['KEY']"))
            raise _Wrong(place, f"`{path}` is no field that a variable can have; expected one of {known}")
        part, name = _FIELDS[path]
        return str((self._pod.get(part) or {}).get(name) or "")

    def _amount(self, reference: Mapping[str, Any], place: str) -> str:
        """An amount of a resource in units of the divisor, rounded up."""
        side, _, name = _plain(reference.get("resource", ""), f"{place}.resource").partition(".")
        if side not in ("limits", "requests") or name not in _AMOUNTS:
            raise _Wrong(
                f"{place}.resource",
                f"`{reference.get('resource', '')}` is not limits or requests of a known amount",
            )
        wanted = reference.get("containerName") or self._container.get("name")
        spec = self._pod["spec"]
        everyone = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
        container = next((each for each in everyone if each.get("name") == wanted), None)
        if container is None:
            raise _Wrong(f"{place}.containerName", f"the pod has no container `{wanted}`")
        resources = container.get("resources") or {}
        limits = (resources.get("limits") or {}).get(name)
        text = limits or self._around.allocatable.get(name, "0")
        if side == "requests":
            text = (resources.get("requests") or {}).get(name) or limits or "0"
        try:
            amount, unit = Quantity.read(text), Quantity.read(reference.get("divisor") or "1")
            unit = Quantity.parse("1") if unit.is_zero else unit
            return str(-(-amount.nanos // unit.nanos))
        except InputError as wrong:
            raise _Wrong(place, str(wrong)) from None

    async def _entry(self, kind: str, reference: Mapping[str, Any], place: str) -> str | None:
        entries = await self._entries(kind, reference, place)
        if entries is None:
            return None
        key, name = _plain(reference.get("key", ""), f"{place}.key"), reference.get("name", "")
        if key in entries:
            return entries[key]
        if reference.get("optional"):
            return None
        raise _Wrong(f"{place}.key", f"{kind} `{name}` has no key `{key}`")

    async def _entries(self, kind: str, reference: Mapping[str, Any], place: str) -> dict[str, str] | None:
        """The entries of a ConfigMap or Secret; None when there is none and none is needed."""
        name = _plain(reference.get("name") or "", f"{place}.name")
        document = await self._document(kind, name, place)
        if document is None:
            if reference.get("optional"):
                return None
            namespace = (self._pod.get("metadata") or {}).get("namespace", "")
            raise _Wrong(f"{place}.name", f"there is no {kind} `{name}` in namespace `{namespace}`")
        entries = document.get("data") or {}
        if kind == "ConfigMap":
            return {key: str(value) for key, value in entries.items()}
        try:
            decoded = {key: base64.b64decode(text, validate=True) for key, text in entries.items()}
        except (binascii.Error, ValueError, TypeError):
            raise _Wrong(place, f"Secret `{name}` holds an entry that is not base64") from None
        return {key: content.decode("utf-8", "replace") for key, content in decoded.items()}

    async def _document(self, kind: str, name: str, place: str) -> Mapping[str, Any] | None:
        if (kind, name) not in self._found:
            try:
                self._found[kind, name] = await self._lookup(kind, name)
            except DrayError as failed:
                raise _Wrong(place, f"cannot read {kind} `{name}`: {failed}") from None
        return self._found[kind, name]


def _object(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _Wrong(place, f"expected an object, got {json_name(value)}")
    return value


def _plain(text: Any, place: str) -> str:
    if not isinstance(text, str):
        raise _Wrong(place, f"expected a text, got {json_name(text)}")
    if "\0" in text:
        raise _Wrong(place, "holds a zero byte, which no command or variable can")
    return text

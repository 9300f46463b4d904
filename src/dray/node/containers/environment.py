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

from dray.api.decode_report import describe_json_type
from dray.errors import DrayError, InputError
from dray.values.quantity import Quantity

Lookup = Callable[[str, str], Awaitable[Mapping[str, Any] | None]]
"""Kind (`ConfigMap` or `Secret`) and name in the pod's namespace, to the document or None."""

_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^)]*)\))")
_METADATA_ENTRY: Final = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")
_FIELDS: Final = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
    "metadata.uid": ("metadata", "uid"),
    "spec.nodeName": ("spec", "nodeName"),
    "spec.serviceAccountName": ("spec", "serviceAccountName"),
    "status.hostIP": ("status", "hostIP"),
    "status.podIP": ("status", "podIP"),
}
_LIST_FIELDS: Final = {"status.hostIPs": "hostIPs", "status.podIPs": "podIPs"}
_KEY_REF_KINDS: Final = {"configMapKeyRef": "ConfigMap", "secretKeyRef": "Secret"}
_ENV_FROM_KINDS: Final = {"configMapRef": "ConfigMap", "secretRef": "Secret"}
_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """Why a container cannot be configured; it waits with `CreateContainerConfigError`."""

    path: str
    detail: str

    @property
    def message(self) -> str:
        return f"{self.path}: {self.detail}"


@dataclass(frozen=True, slots=True)
class ResolvedContainer:
    """What a container runs, ready to be launched."""

    command: tuple[str, ...]
    args: tuple[str, ...]
    env: Mapping[str, str]
    working_dir: str


@dataclass(frozen=True, slots=True)
class NodeEnvironment:
    """What a pod's variables may ask of the node."""

    allocatable: Mapping[str, str] = field(default_factory=dict)
    """What stands for limits that a container does not have."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables that every container has, such as those of services."""


class _ConfigError(Exception):
    """A problem on its way out."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(detail)
        self.problem = ConfigProblem(path, detail)


async def resolve_container(
    pod: Mapping[str, Any], field_path: str, lookup: Lookup, node: NodeEnvironment | None = None
) -> ResolvedContainer | ConfigProblem:
    """Resolve one container of a pod; `field_path` is for example `spec.initContainers[0]`."""
    reading = _ContainerResolver(pod, field_path, lookup, node or NodeEnvironment())
    try:
        return await reading.resolve()
    except _ConfigError as wrong:
        return wrong.problem


def expand_variables(text: str, variables: Mapping[str, str]) -> str:
    """A text with `$(NAME)` replaced."""

    def meant(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return variables.get(found[1], found[0])

    return _REFERENCE.sub(meant, text)


def get_container(pod: Mapping[str, Any], field_path: str) -> Mapping[str, Any]:
    """The container at a field path."""
    _, rest = field_path.split(".", 1)
    kind, _, number = rest.rstrip("]").partition("[")
    found: Mapping[str, Any] = pod["spec"][kind][int(number)]
    return found


class _ContainerResolver:
    """One container being worked out; each object is looked up once."""

    def __init__(
        self, pod: Mapping[str, Any], field_path: str, lookup: Lookup, node: NodeEnvironment
    ) -> None:
        self._pod = pod
        self._field_path = field_path
        self._container = get_container(pod, field_path)
        self._lookup = lookup
        self._node = node
        self._fetched: dict[tuple[str, str], Mapping[str, Any] | None] = {}

    async def resolve(self) -> ResolvedContainer:
        variables = dict(self._node.variables)
        for position, source in enumerate(self._get_list("envFrom")):
            place = f"{self._field_path}.envFrom[{position}]"
            variables |= await self._read_env_from(_require_object(source, place), place)
        for position, each in enumerate(self._get_list("env")):
            place = f"{self._field_path}.env[{position}]"
            entry = _require_object(each, place)
            if entry.get("valueFrom"):
                source = _require_object(entry["valueFrom"], f"{place}.valueFrom")
                value = await self._read_value_from(source, f"{place}.valueFrom")
            else:
                value = expand_variables(_require_text(entry.get("value") or "", place), variables)
            if value is not None:
                variables[_require_text(entry.get("name", ""), f"{place}.name")] = _require_text(value, place)
        return ResolvedContainer(
            command=self._expand_list("command", variables),
            args=self._expand_list("args", variables),
            env=variables,
            working_dir=_require_text(
                self._container.get("workingDir") or "", f"{self._field_path}.workingDir"
            ),
        )

    def _get_list(self, name: str) -> Sequence[Any]:
        found = self._container.get(name) or ()
        if not isinstance(found, list | tuple):
            raise _ConfigError(
                f"{self._field_path}.{name}", f"expected a list, got {describe_json_type(found)}"
            )
        return found

    def _expand_list(self, name: str, variables: Mapping[str, str]) -> tuple[str, ...]:
        places = ((word, f"{self._field_path}.{name}[{at}]") for at, word in enumerate(self._get_list(name)))
        return tuple(
            _require_text(expand_variables(_require_text(word, place), variables), place)
            for word, place in places
        )

    async def _read_env_from(self, source: Mapping[str, Any], field_path: str) -> dict[str, str]:
        for name, kind in _ENV_FROM_KINDS.items():
            reference = _require_object(source.get(name) or {}, f"{field_path}.{name}")
            if reference:
                entries = await self._read_entries(kind, reference, f"{field_path}.{name}")
                prefix = source.get("prefix") or ""
                # A key that can be no variable is passed over, as it is everywhere.
                return {
                    prefix + key: value
                    for key, value in (entries or {}).items()
                    if not set("=\0") & set(key) and "\0" not in value
                }
        raise _ConfigError(field_path, f"expected one of {', '.join(_ENV_FROM_KINDS)}")

    async def _read_value_from(self, source: Mapping[str, Any], field_path: str) -> str | None:
        if source.get("fieldRef"):
            path = _require_object(source["fieldRef"], f"{field_path}.fieldRef").get("fieldPath", "")
            return self._read_field(_require_text(path, field_path), f"{field_path}.fieldRef.fieldPath")
        if source.get("resourceFieldRef"):
            field_path = f"{field_path}.resourceFieldRef"
            return self._read_resource(_require_object(source["resourceFieldRef"], field_path), field_path)
        for name, kind in _KEY_REF_KINDS.items():
            reference = _require_object(source.get(name) or {}, f"{field_path}.{name}")
            if reference:
                return await self._read_key(kind, reference, f"{field_path}.{name}")
        expected = ", ".join(("fieldRef", "resourceFieldRef", *_KEY_REF_KINDS))
        raise _ConfigError(field_path, f"expected one of {expected}")

    def _read_field(self, path: str, field_path: str) -> str:
        entry = _METADATA_ENTRY.fullmatch(path)
        if entry:
            metadata = self._pod.get("metadata") or {}
            return str((metadata.get(entry[1]) or {}).get(entry[2], ""))
        if path in _LIST_FIELDS:
            rows = (self._pod.get("status") or {}).get(_LIST_FIELDS[path]) or ()
            return ",".join(str(row.get("ip", "")) for row in rows if isinstance(row, Mapping))
        if path not in _FIELDS:
            known = ", ".join(
                (*_FIELDS, *_LIST_FIELDS, "metadata.labels['KEY']", "metadata.annotations['KEY']")
            )
            raise _ConfigError(
                field_path, f"`{path}` is no field that a variable can have; expected one of {known}"
            )
        part, name = _FIELDS[path]
        return str((self._pod.get(part) or {}).get(name) or "")

    def _read_resource(self, reference: Mapping[str, Any], field_path: str) -> str:
        """An amount of a resource in units of the divisor, rounded up."""
        side, _, name = _require_text(reference.get("resource", ""), f"{field_path}.resource").partition(".")
        if side not in ("limits", "requests") or name not in _RESOURCES:
            raise _ConfigError(
                f"{field_path}.resource",
                f"`{reference.get('resource', '')}` is not limits or requests of a known amount",
            )
        wanted = reference.get("containerName") or self._container.get("name")
        spec = self._pod["spec"]
        everyone = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
        container = next((each for each in everyone if each.get("name") == wanted), None)
        if container is None:
            raise _ConfigError(f"{field_path}.containerName", f"the pod has no container `{wanted}`")
        resources = container.get("resources") or {}
        limits = (resources.get("limits") or {}).get(name)
        text = limits or self._node.allocatable.get(name, "0")
        if side == "requests":
            text = (resources.get("requests") or {}).get(name) or limits or "0"
        try:
            amount, unit = (
                Quantity.from_json_value(text),
                Quantity.from_json_value(reference.get("divisor") or "1"),
            )
            unit = Quantity.parse("1") if unit.is_zero else unit
            return str(-(-amount.nanos // unit.nanos))
        except InputError as wrong:
            raise _ConfigError(field_path, str(wrong)) from None

    async def _read_key(self, kind: str, reference: Mapping[str, Any], field_path: str) -> str | None:
        entries = await self._read_entries(kind, reference, field_path)
        if entries is None:
            return None
        key, name = _require_text(reference.get("key", ""), f"{field_path}.key"), reference.get("name", "")
        if key in entries:
            return entries[key]
        if reference.get("optional"):
            return None
        raise _ConfigError(f"{field_path}.key", f"{kind} `{name}` has no key `{key}`")

    async def _read_entries(
        self, kind: str, reference: Mapping[str, Any], field_path: str
    ) -> dict[str, str] | None:
        """The entries of a ConfigMap or Secret; None when there is none and none is needed."""
        name = _require_text(reference.get("name") or "", f"{field_path}.name")
        document = await self._fetch_object(kind, name, field_path)
        if document is None:
            if reference.get("optional"):
                return None
            namespace = (self._pod.get("metadata") or {}).get("namespace", "")
            raise _ConfigError(
                f"{field_path}.name", f"there is no {kind} `{name}` in namespace `{namespace}`"
            )
        entries = document.get("data") or {}
        if kind == "ConfigMap":
            return {key: str(value) for key, value in entries.items()}
        try:
            decoded = {key: base64.b64decode(text, validate=True) for key, text in entries.items()}
        except (binascii.Error, ValueError, TypeError):
            raise _ConfigError(field_path, f"Secret `{name}` holds an entry that is not base64") from None
        return {key: content.decode("utf-8", "replace") for key, content in decoded.items()}

    async def _fetch_object(self, kind: str, name: str, field_path: str) -> Mapping[str, Any] | None:
        if (kind, name) not in self._fetched:
            try:
                self._fetched[kind, name] = await self._lookup(kind, name)
            except DrayError as failed:
                raise _ConfigError(field_path, f"cannot read {kind} `{name}`: {failed}") from None
        return self._fetched[kind, name]


def _require_object(value: Any, field_path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _ConfigError(field_path, f"expected an object, got {describe_json_type(value)}")
    return value


def _require_text(text: Any, field_path: str) -> str:
    if not isinstance(text, str):
        raise _ConfigError(field_path, f"expected a text, got {describe_json_type(text)}")
    if "\0" in text:
        raise _ConfigError(field_path, "holds a zero byte, which no command or variable can")
    return text

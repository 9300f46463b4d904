"""Resolves a container's command, arguments and environment variables from the pod.

Theory of operation: variables come from `envFrom` in order, then from `env` in order; later ones override
earlier ones. `$(NAME)` in a value refers to a variable defined before it, in `command` and `args` to any;
`$$` is a dollar sign, and a reference to an undefined name stays unchanged. A missing object or key is a
`ConfigProblem` with the field: the container waits until the pod or the object is corrected.
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
"""Returns the object of a kind (`ConfigMap` or `Secret`) and name in the pod's namespace, or None."""

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
    """The resolved command and environment of a container."""

    command: tuple[str, ...]
    args: tuple[str, ...]
    env: Mapping[str, str]
    working_dir: str


@dataclass(frozen=True, slots=True)
class NodeEnvironment:
    """The node's contribution to the variables of containers."""

    allocatable: Mapping[str, str] = field(default_factory=dict)
    """Values for limits that a container does not set."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables of every container, such as those of services."""


class _ConfigError(Exception):
    """Carries a `ConfigProblem`."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(detail)
        self.problem = ConfigProblem(path, detail)


async def resolve_container(
    pod: Mapping[str, Any], field_path: str, lookup: Lookup, node: NodeEnvironment | None = None
) -> ResolvedContainer | ConfigProblem:
    """Resolve one container of a pod; `field_path` is for example `spec.initContainers[0]`."""
    resolver = _ContainerResolver(pod, field_path, lookup, node or NodeEnvironment())
    try:
        return await resolver.resolve()
    except _ConfigError as error:
        return error.problem


def expand_variables(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` in a text."""

    def expand(reference: re.Match[str]) -> str:
        if reference[0] == "$$":
            return "$"
        return variables.get(reference[1], reference[0])

    return _REFERENCE.sub(expand, text)


def get_container(pod: Mapping[str, Any], field_path: str) -> Mapping[str, Any]:
    """Return the container at a field path."""
    _, rest = field_path.split(".", 1)
    kind, _, number = rest.rstrip("]").partition("[")
    found: Mapping[str, Any] = pod["spec"][kind][int(number)]
    return found


class _ContainerResolver:
    """Resolves one container; each object is fetched once."""

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
            path = f"{self._field_path}.envFrom[{position}]"
            variables |= await self._read_env_from(_require_object(source, path), path)
        for position, each in enumerate(self._get_list("env")):
            path = f"{self._field_path}.env[{position}]"
            entry = _require_object(each, path)
            if entry.get("valueFrom"):
                source = _require_object(entry["valueFrom"], f"{path}.valueFrom")
                value = await self._read_value_from(source, f"{path}.valueFrom")
            else:
                value = expand_variables(_require_text(entry.get("value") or "", path), variables)
            if value is not None:
                variables[_require_text(entry.get("name", ""), f"{path}.name")] = _require_text(value, path)
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
        words = ((word, f"{self._field_path}.{name}[{at}]") for at, word in enumerate(self._get_list(name)))
        return tuple(
            _require_text(expand_variables(_require_text(word, path), variables), path)
            for word, path in words
        )

    async def _read_env_from(self, source: Mapping[str, Any], field_path: str) -> dict[str, str]:
        for name, kind in _ENV_FROM_KINDS.items():
            reference = _require_object(source.get(name) or {}, f"{field_path}.{name}")
            if reference:
                entries = await self._read_entries(kind, reference, f"{field_path}.{name}")
                prefix = source.get("prefix") or ""
                # A key that is no valid variable name is skipped, as the kubelet does.
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
                field_path, f"`{path}` is no field that a variable can refer to; expected one of {known}"
            )
        part, name = _FIELDS[path]
        return str((self._pod.get(part) or {}).get(name) or "")

    def _read_resource(self, reference: Mapping[str, Any], field_path: str) -> str:
        """Return an amount of a resource in units of the divisor, rounded up."""
        side, _, name = _require_text(reference.get("resource", ""), f"{field_path}.resource").partition(".")
        if side not in ("limits", "requests") or name not in _RESOURCES:
            raise _ConfigError(
                f"{field_path}.resource",
                f"`{reference.get('resource', '')}` is not limits or requests of a known amount",
            )
        wanted = reference.get("containerName") or self._container.get("name")
        spec = self._pod["spec"]
        containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
        container = next((each for each in containers if each.get("name") == wanted), None)
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
        except InputError as error:
            raise _ConfigError(field_path, str(error)) from None

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
        """Return the entries of a ConfigMap or Secret; None when an optional one does not exist."""
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
            except DrayError as error:
                raise _ConfigError(field_path, f"cannot read {kind} `{name}`: {error}") from None
        return self._fetched[kind, name]


def _require_object(value: Any, field_path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _ConfigError(field_path, f"expected an object, got {describe_json_type(value)}")
    return value


def _require_text(text: Any, field_path: str) -> str:
    if not isinstance(text, str):
        raise _ConfigError(field_path, f"expected a text, got {describe_json_type(text)}")
    if "\0" in text:
        raise _ConfigError(field_path, "contains a zero byte, which no command or variable may")
    return text

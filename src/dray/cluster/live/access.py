"""Lists objects of a running cluster as far as a user may read them, and says once what is missing.

Theory of operation: a kind is listed in the whole cluster. Where that is forbidden, a kind of namespaces is
listed in the namespaces that the caller names. What could not be read is an `AccessGap`; the caller answers
from the rest and prints `describe_gaps`. A kind that the server does not serve has no objects and is no gap;
`find_served_versions` helps to tell a server without devices from one without objects.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from dray.api.kinds import Kind
from dray.client.client import Client
from dray.client.errors import ForbiddenError, KindNotServedError, NotFoundError

T = TypeVar("T")

VIEWER_ROLE: Final = "dray:viewer"
DEVICE_GROUP: Final = "resource.k8s.io"


@dataclass(frozen=True, slots=True)
class AccessGap:
    """A kind that may not be read in the whole cluster, and the namespaces where it was read instead."""

    kind: Kind
    namespaces: tuple[str, ...] = ()

    @property
    def resource(self) -> str:
        """The resource as roles name it: `resourceclaims.resource.k8s.io`."""
        return f"{self.kind.plural}.{self.kind.group}" if self.kind.group else self.kind.plural


@dataclass(frozen=True, slots=True)
class ReadableObjects:
    """The objects of a kind that could be read, and what could not."""

    items: tuple[object, ...] = ()
    gap: AccessGap | None = None
    is_served: bool = True


ListObjects = Callable[[str], Awaitable[Sequence[object]]]
"""Lists a kind in a namespace; in the whole cluster when the name is empty."""


async def list_readable(
    client: Client, kind: Kind, list_objects: ListObjects, namespaces: Sequence[str] = ()
) -> ReadableObjects:
    """List a kind in the cluster, or in some namespaces where the cluster as a whole is forbidden."""
    try:
        return ReadableObjects(tuple(await list_objects("")))
    except KindNotServedError:
        return ReadableObjects(is_served=False)
    except NotFoundError as missing:
        if missing.is_unknown_resource:
            return ReadableObjects(is_served=False)
        raise
    except ForbiddenError:
        # Kubernetes checks rights before it looks whether it serves a kind at all.
        if not await client.serves(kind):
            return ReadableObjects(is_served=False)
    items: list[object] = []
    allowed: list[str] = []
    for namespace in namespaces if kind.namespaced else ():
        try:
            items += await list_objects(namespace)
            allowed.append(namespace)
        except ForbiddenError:
            continue
    return ReadableObjects(tuple(items), AccessGap(kind, tuple(allowed)))


def format_gaps(gaps: Iterable[AccessGap]) -> str:
    """Format all that may not be read, as roles name it."""
    all_gaps = list(gaps)
    unread = [gap.resource for gap in all_gaps if not gap.namespaces]
    elsewhere: dict[tuple[str, ...], list[str]] = {}
    for gap in all_gaps:
        if gap.namespaces:
            elsewhere.setdefault(gap.namespaces, []).append(gap.resource)
    parts = [", ".join(unread)] if unread else []
    for namespaces, resources in elsewhere.items():
        places = ", ".join(f"`{name}`" for name in namespaces)
        noun = "namespace" if len(namespaces) == 1 else "namespaces"
        parts.append(f"{', '.join(resources)} outside of {noun} {places}")
    return f"not allowed to read {'; '.join(parts)}"


def describe_gaps(gaps: Iterable[AccessGap]) -> tuple[str, ...]:
    """Describe all that may not be read in one line, and what would help in a second."""
    all_gaps = list(gaps)
    if not all_gaps:
        return ()
    missing = {gap.kind.plural for gap in all_gaps}
    effects = [text for plural, text in _EFFECTS.items() if plural in missing]
    line = f"{format_gaps(all_gaps)}: the answer comes from the rest"
    if effects and "resourceslices" not in missing:
        line += f" ({'; '.join(effects)})"
    return (line, f"hint: {VIEWER_HINT}")


VIEWER_HINT: Final = f"the role `{VIEWER_ROLE}` (deploy/viewer.yaml) allows reading all of it"

_EFFECTS: Final = {
    "resourceclaims": "devices of unseen claims look free",
    "pods": "what unseen pods need of nodes is not counted",
    "devicetaintrules": "devices look as if no rule tainted them",
}
"""What is different in an answer without all objects of a kind."""


async def find_served_versions(client: Client, group: str = DEVICE_GROUP) -> tuple[str, ...]:
    """Find the versions of a group that the server serves; none when it does not serve the group."""
    try:
        document = await client.get_json(f"/apis/{group}")
    except (NotFoundError, ForbiddenError):
        return ()
    rows = document.get("versions") if isinstance(document, dict) else None
    return tuple(str(row.get("version")) for row in rows or () if isinstance(row, dict))


def describe_unserved(kind: Kind, served: Sequence[str]) -> str:
    """Describe a server that serves no version of a kind of devices that we read."""
    wanted = ", ".join(f"`{version}`" for version in kind.versions)
    if not served:
        return (
            f"the server does not serve the API group `{kind.group}`, so there are no devices; expected "
            f"{wanted} of it (Kubernetes 1.32 or newer; before 1.34 it is off by default)"
        )
    found = ", ".join(f"`{version}`" for version in served)
    return (
        f"the server serves `{kind.group}` only as {found}, so no devices can be read; "
        f"expected one of {wanted}"
    )

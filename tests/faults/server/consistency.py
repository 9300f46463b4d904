"""R-05: whatever is written, a list from the cache is what the store has at that revision.

After every random write the objects of the kind are listed through the API, which answers from the cache, and
read from the store at the very revision the list says it shows. Both must be equal, object for object.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from dray.api.kinds import KINDS, Kind
from dray.server.objects.stored_object import StoredObject, build_prefix
from dray.store import Store
from tests.contract.api import JSON_PATCH, MERGE, Api, Document, path

NAMES = 12
NAMESPACES = ("default", "kube-public")
PLURALS = ("configmaps", "resourceclaims", "deviceclasses", "pods")
_KINDS: dict[str, Kind] = {
    kind.plural: kind for kind in KINDS if kind.plural in PLURALS and kind.group != "cdi.k8s.io"
}


@dataclass
class Tally:
    """What happened, and what was found."""

    writes: int = 0
    compared: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        verdict = f"{len(self.wrong)} differences" if self.wrong else "0 differences"
        return f"{self.writes} writes, {self.compared} objects compared, {verdict}, {dict(self.codes)}"


def document(plural: str, namespace: str, name: str, random: Random) -> Document:
    """An object of a kind, with something in it that varies."""
    metadata: Document = {"name": name, "labels": {"n": str(random.randrange(5))}}
    kind = _KINDS[plural]
    if kind.namespaced:
        metadata["namespace"] = namespace
    body: Document = {"apiVersion": kind.internal_api_version, "kind": kind.name, "metadata": metadata}
    match plural:
        case "configmaps":
            body["data"] = {"x": "y" * random.randrange(50)}
        case "resourceclaims":
            exactly = {"deviceClassName": f"class-{random.randrange(3)}"}
            body["spec"] = {"devices": {"requests": [{"name": "a", "exactly": exactly}]}}
        case "deviceclasses":
            body["spec"] = {"selectors": [{"cel": {"expression": f"{random.randrange(3)} == 1"}}]}
        case "pods":
            body["spec"] = {"containers": [{"name": "c", "image": f"i{random.randrange(3)}"}]}
    return body


async def write(api: Api, random: Random) -> tuple[str, int]:
    """One random write; the kind that was written, and how it was answered."""
    plural, namespace = random.choice(PLURALS), random.choice(NAMESPACES)
    name = f"n{random.randrange(NAMES)}"
    place = path(plural, name, namespace=namespace)
    draw = random.random()
    if draw < 0.4:
        body = document(plural, namespace, name, random)
        said = await api.ask("POST", path(plural, namespace=namespace), body)
    elif draw < 0.55:
        said = await api.ask("PUT", place, document(plural, namespace, name, random))
    elif draw < 0.7:
        patch: Any = {"metadata": {"annotations": {"a": str(random.random())}}}
        said = await api.ask("PATCH", place, patch, headers={"content-type": MERGE})
    elif draw < 0.8:
        patch = [{"op": "add", "path": "/metadata/labels/p", "value": str(random.randrange(9))}]
        said = await api.ask("PATCH", place, patch, headers={"content-type": JSON_PATCH})
    elif draw < 0.98:
        said = await api.ask("DELETE", place, {"gracePeriodSeconds": 0})
    else:
        said = await api.ask("DELETE", path(plural, namespace=namespace), labelSelector="n=1")
    return plural, said.code


async def compare(api: Api, store: Store, plural: str, tally: Tally) -> None:
    """List a kind both ways."""
    listed = await api.get(path(plural, namespace=""))
    revision = int(listed["metadata"]["resourceVersion"])
    page = await store.range(build_prefix(_KINDS[plural]), revision=revision)
    stored = [_bare(StoredObject.from_entry(entry).document) for entry in page.entries]
    cached = [_bare(item) for item in listed["items"]]
    tally.compared += len(stored)
    if stored != cached:
        tally.wrong.append(f"{plural} at revision {revision} after {tally.writes} writes")


def _bare(item: Document) -> Document:
    return {name: value for name, value in item.items() if name not in ("apiVersion", "kind")}


async def campaign(api: Api, store: Store, writes: int, seed: int) -> Tally:
    """Write and compare, again and again."""
    random, tally = Random(seed), Tally()
    while tally.writes < writes:
        plural, code = await write(api, random)
        tally.codes[str(code)] += 1
        if code < 300:
            tally.writes += 1
            await compare(api, store, plural, tally)
        elif code >= 500:
            tally.wrong.append(f"{plural} was answered with {code}")
    return tally

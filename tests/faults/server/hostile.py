"""S-07 at the server: documents and bytes broken on purpose, through every endpoint that takes a body.

Whatever is sent, no answer is a fault of the server (5xx), and what was accepted is read back exactly as it
was answered. Inputs are those of `tests.fuzz`, each made from the seed and its number alone; what they meet
depends on those before.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import quote

from dray.api.json_text import find_non_json_values, write_json
from dray.api.kinds import KINDS, Kind
from tests.contract.api import APPLY, JSON_PATCH, MERGE, STRATEGIC, Api, ServerResponse
from tests.fuzz.mutations import broken
from tests.fuzz.raw_bytes import raw

_BY_NAME = {
    (kind.format_api_version(version), kind.name): kind for kind in KINDS for version in kind.versions
}
_MEDIA = ("application/json", "application/yaml", "", "text/plain", "application/vnd.kubernetes.protobuf")
_PATCHES = (MERGE, STRATEGIC, JSON_PATCH, APPLY, "application/apply-patch+cbor")
STANDING = 60
_OFTEN = tuple(kind for kind in KINDS if not kind.is_opaque)


@dataclass
class Tally:
    """What became of the inputs."""

    sent: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        codes = {code: self.codes[code] for code in sorted(self.codes)}
        return f"{self.sent} bodies, {len(self.faults)} faults, answers {codes}"


class Siege:
    """Sends bodies, and remembers some objects they made, so that later ones find something to change."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._standing: list[str] = []

    async def send(self, random: Random) -> ServerResponse:
        """Send one random request."""
        if random.random() < 0.6:
            document = broken(random)
            body = raw(random) if find_non_json_values(document) else write_json(document)
        else:
            document, body = None, raw(random)
        kind, version, name = _aim(document, random)
        draw = random.random()
        if draw < 0.4:
            return await self._create(kind, version, body, random)
        place = f"{_path(kind, version)}/{name}"
        if self._standing and random.random() < 0.7:
            place = random.choice(self._standing)
        if draw < 0.6:
            media = {"content-type": _media(random)}
            return await self._api.ask("PUT", place + random.choice(("", "/status")), body, headers=media)
        if draw < 0.95:
            query = {"fieldManager": "fuzz"} if random.random() < 0.9 else {}
            media = {"content-type": random.choice(_PATCHES)}
            return await self._api.ask("PATCH", place, body, headers=media, **query)
        return await self._api.ask("DELETE", place, body)

    async def _create(self, kind: Kind, version: str, body: bytes, random: Random) -> ServerResponse:
        media = {"content-type": _media(random)}
        said = await self._api.ask("POST", _path(kind, version), body, headers=media)
        if said.code == 201:
            name = quote(said.document["metadata"]["name"], safe="")  # roles may be called almost anything
            place = f"{_path(kind, version, said.document)}/{name}"
            if kind.name != "ResourceQuota":  # the server itself writes the status of a new quota
                await self._read_back(place, said)
            self._standing.append(place)
            if len(self._standing) > STANDING:
                gone = self._standing.pop(random.randrange(STANDING))
                await self._api.ask("DELETE", gone, {"gracePeriodSeconds": 0})
        return said

    async def _read_back(self, place: str, said: ServerResponse) -> None:
        """What was accepted must be there as it was answered."""
        again = await self._api.ask("GET", place)
        if again.document != said.document:
            raise AssertionError(f"{place} is read as {again.document}, and was answered as {said.document}")


async def campaign(api: Api, seed: int, start: int, stop: int) -> Tally:
    """Send inputs by their numbers."""
    tally, siege = Tally(), Siege(api)
    for number in range(start, stop):
        tally.sent += 1
        try:
            said = await siege.send(Random(f"{seed}:{number}"))
        except Exception as fault:
            tally.faults.append(f"input {number}: {type(fault).__name__}: {fault}"[:500])
            continue
        tally.codes[said.code] += 1
        if said.code >= 500:
            tally.faults.append(f"input {number}: {said.code} {said.document}"[:500])
    return tally


def _aim(document: Any, random: Random) -> tuple[Kind, str, str]:
    """Where a document would go; anywhere, when it does not say."""
    kind, version, name = random.choice(_OFTEN), "", f"n{random.randrange(20)}"
    if isinstance(document, dict) and random.random() < 0.9:
        said = (document.get("apiVersion"), document.get("kind"))
        if all(isinstance(word, str) for word in said) and said in _BY_NAME:
            kind, version = _BY_NAME[said], str(said[0]).rpartition("/")[2]
        metadata = document.get("metadata")
        if isinstance(metadata, dict) and isinstance(metadata.get("name"), str) and random.random() < 0.5:
            name = (
                "".join(sign for sign in metadata["name"] if sign.isalnum() and sign.isascii())[:60] or name
            )
    return kind, version or random.choice(kind.versions), name


def _path(kind: Kind, version: str, document: Any = None) -> str:
    top = f"/apis/{kind.group}/{version}" if kind.group else f"/api/{version}"
    namespace = "default" if document is None else document["metadata"].get("namespace", "")
    return f"{top}{f'/namespaces/{namespace}' if kind.namespaced else ''}/{kind.plural}"


def _media(random: Random) -> str:
    return random.choice(_MEDIA) if random.random() < 0.1 else "application/json"

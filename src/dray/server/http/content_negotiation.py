"""Which form an answer takes: the `Accept` header weighed against what can be offered.

Theory of operation: the wishes of the header are put in order (by `q`, then the definite ones before those
with a star, then as they stand) and the first that can be met wins. A wish for another shape of the same
thing (`as=Table;v=v1;g=meta.k8s.io`) is met only where that shape is offered; parameters nobody knows are
ignored. Clients that speak protobuf first name JSON or `*/*` behind it and get JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from dray.api.json_text import read_json
from dray.manifests.writer import to_yaml_block
from dray.server.http import errors

JSON: Final = "application/json"
YAML: Final = "application/yaml"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
ACCEPTED_BODIES: Final = (JSON, YAML, PROTOBUF)
"""What the body of a request may be."""


class Representation(StrEnum):
    """What is told of the objects asked for; the values are the words of the `as` parameter."""

    WHOLE = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"
    METADATA_LIST = "PartialObjectMetadataList"
    DISCOVERY = "APIGroupDiscoveryList"


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """How an answer is written: JSON or YAML, and in which shape and version of that shape."""

    media: str = JSON
    representation: Representation = Representation.WHOLE
    version: str = ""

    @property
    def content_type(self) -> str:
        """What the answer is called; only discovery says its shape, tables say it in their `kind`."""
        if self.representation is Representation.DISCOVERY:
            return f"{self.media};g=apidiscovery.k8s.io;v={self.version};as={self.representation}"
        return self.media

    def encode(self, text: bytes) -> bytes:
        """A JSON text as this form has it."""
        return text if self.media == JSON else to_yaml_block(read_json(text)).encode()


PLAIN_JSON: Final = ResponseFormat()


@dataclass(frozen=True, slots=True)
class OfferedFormats:
    """What a path can answer with: media types, the best first, and shapes as (shape, group, version)."""

    media: tuple[str, ...] = (JSON, YAML)
    representations: frozenset[tuple[str, str, str]] = frozenset()


def _list_representations(
    group: str, versions: tuple[str, ...], *representations: Representation
) -> frozenset[tuple[str, str, str]]:
    return frozenset((shape.value, group, version) for shape in representations for version in versions)


_REDUCED = _list_representations(
    "meta.k8s.io",
    ("v1", "v1beta1"),
    Representation.TABLE,
    Representation.METADATA,
    Representation.METADATA_LIST,
)

DOCUMENT_FORMATS: Final = OfferedFormats()
"""Something that has one shape."""
OBJECT_FORMATS: Final = OfferedFormats(representations=_REDUCED)
"""An object or a list of objects."""
WATCH_FORMATS: Final = OfferedFormats((JSON,), _REDUCED)
"""A stream of objects."""
DISCOVERY_FORMATS: Final = OfferedFormats(
    representations=_list_representations("apidiscovery.k8s.io", ("v2", "v2beta1"), Representation.DISCOVERY)
)
"""The resources there are."""


@lru_cache(maxsize=512)
def negotiate(accept: str, offer: OfferedFormats = OBJECT_FORMATS) -> ResponseFormat:
    """The form that meets the header best; a `Failure` of 406 when none does."""
    if accept in (JSON, "*/*", ""):
        return PLAIN_JSON
    for wish in sorted((_parse_clause(part) for part in accept.split(",")), key=_rank_clause):
        form = _match_offer(wish, offer)
        if form is not None:
            return form
    raise errors.new_not_acceptable([*offer.media, f"{JSON};stream=watch"])


@dataclass(frozen=True, slots=True)
class _AcceptClause:
    media: str
    quality: float
    representation: tuple[str, str, str]


def _parse_clause(part: str) -> _AcceptClause:
    media, *rest = (piece.strip() for piece in part.split(";"))
    given = {
        name.strip().lower(): value.strip().strip('"') for name, _, value in (p.partition("=") for p in rest)
    }
    shape = (given.get("as", ""), given.get("g", ""), given.get("v", ""))
    return _AcceptClause(
        media.lower(), _parse_quality(given.get("q", "1")), shape if shape[0] else ("", "", "")
    )


def _parse_quality(text: str) -> float:
    """A weight between 0 and 1; what is no number weighs nothing."""
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if 0 < weight <= 1 else 0.0


def _rank_clause(clause: _AcceptClause) -> tuple[float, int]:
    return -clause.quality, clause.media.count("*")


def _match_offer(clause: _AcceptClause, offer: OfferedFormats) -> ResponseFormat | None:
    if not clause.quality or (
        clause.representation[0] and clause.representation not in offer.representations
    ):
        return None
    kind = clause.media.removesuffix("/*")
    for media in offer.media:
        if clause.media in (media, "*/*") or kind == media.partition("/")[0]:
            return ResponseFormat(media, Representation(clause.representation[0]), clause.representation[2])
    return None

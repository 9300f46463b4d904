"""Content negotiation: chooses the format of a response from the `Accept` header and the formats on offer.

Theory of operation: the clauses of the header are sorted (by `q`, then those without a wildcard first, then
in the given order), and the first that matches an offer wins. A clause for another representation of an
object (`as=Table;v=v1;g=meta.k8s.io`) matches only where that representation is offered; unknown parameters
are ignored. Protobuf is offered only for kinds that have a message, and only for whole objects; clients that
prefer it list JSON or `*/*` after it, and get JSON for everything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from dray.api.json_text import read_json
from dray.manifests.writer import to_yaml_block
from dray.server.http import errors
from dray.server.http.requests import JSON, PROTOBUF, YAML


class Representation(StrEnum):
    """How objects are represented; the values are those of the `as` parameter."""

    WHOLE = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"
    METADATA_LIST = "PartialObjectMetadataList"
    DISCOVERY = "APIGroupDiscoveryList"


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """How a response is written: its media type, and the representation of objects with its version."""

    media: str = JSON
    representation: Representation = Representation.WHOLE
    version: str = ""

    @property
    def content_type(self) -> str:
        """The `Content-Type`; only discovery names its representation, tables have it in their `kind`."""
        if self.representation is Representation.DISCOVERY:
            return f"{self.media};g=apidiscovery.k8s.io;v={self.version};as={self.representation}"
        return self.media

    def encode(self, text: bytes) -> bytes:
        """Encode a JSON text in the media type of this format."""
        if self.media == JSON:
            return text
        if self.media == PROTOBUF:
            # Its runtime is slow to import.
            from dray.server.http.protobuf import encode

            return encode(text)
        return to_yaml_block(read_json(text)).encode()


PLAIN_JSON: Final = ResponseFormat()


@dataclass(frozen=True, slots=True)
class OfferedFormats:
    """What an endpoint offers: media types, the best first, and representations with group and version."""

    media: tuple[str, ...] = (JSON, YAML)
    representations: frozenset[tuple[str, str, str]] = frozenset()


def _list_representations(
    group: str, versions: tuple[str, ...], *representations: Representation
) -> frozenset[tuple[str, str, str]]:
    return frozenset((each.value, group, version) for each in representations for version in versions)


_REDUCED = _list_representations(
    "meta.k8s.io",
    ("v1", "v1beta1"),
    Representation.TABLE,
    Representation.METADATA,
    Representation.METADATA_LIST,
)

DOCUMENT_FORMATS: Final = OfferedFormats()
"""A document with a single representation."""
OBJECT_FORMATS: Final = OfferedFormats(representations=_REDUCED)
"""An object or a list of objects."""
WATCH_FORMATS: Final = OfferedFormats((JSON,), _REDUCED)
"""A stream of objects."""
PROTOBUF_OBJECT_FORMATS: Final = OfferedFormats((JSON, YAML, PROTOBUF), _REDUCED)
PROTOBUF_WATCH_FORMATS: Final = OfferedFormats((JSON, PROTOBUF), _REDUCED)
"""The same for kinds that have a protobuf message."""
DISCOVERY_FORMATS: Final = OfferedFormats(
    representations=_list_representations("apidiscovery.k8s.io", ("v2", "v2beta1"), Representation.DISCOVERY)
)
"""Discovery documents."""


@lru_cache(maxsize=512)
def negotiate(accept: str, offer: OfferedFormats = OBJECT_FORMATS) -> ResponseFormat:
    """Choose the format that matches the header best; raises an `ApiStatusError` (406) when none does."""
    if accept in (JSON, "*/*", ""):
        return PLAIN_JSON
    for clause in sorted((_parse_clause(part) for part in accept.split(",")), key=_rank_clause):
        response_format = _match_offer(clause, offer)
        if response_format is not None:
            return response_format
    raise errors.new_not_acceptable([*offer.media, f"{JSON};stream=watch"])


@dataclass(frozen=True, slots=True)
class _AcceptClause:
    media: str
    quality: float
    representation: tuple[str, str, str]


def _parse_clause(part: str) -> _AcceptClause:
    media, *rest = (piece.strip() for piece in part.split(";"))
    parameters = {
        name.strip().lower(): value.strip().strip('"') for name, _, value in (p.partition("=") for p in rest)
    }
    representation = (parameters.get("as", ""), parameters.get("g", ""), parameters.get("v", ""))
    return _AcceptClause(
        media.lower(),
        _parse_quality(parameters.get("q", "1")),
        representation if representation[0] else ("", "", ""),
    )


def _parse_quality(text: str) -> float:
    """A weight between 0 and 1; 0 when the text is no number."""
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
        if media == PROTOBUF and clause.representation[0]:
            continue
        if clause.media in (media, "*/*") or kind == media.partition("/")[0]:
            return ResponseFormat(media, Representation(clause.representation[0]), clause.representation[2])
    return None

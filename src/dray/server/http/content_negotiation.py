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
from dray.manifests.writer import yaml_block
from dray.server.http import errors

JSON: Final = "application/json"
YAML: Final = "application/yaml"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
ACCEPTED_BODIES: Final = (JSON, YAML, PROTOBUF)
"""What the body of a request may be."""


class Shape(StrEnum):
    """What is told of the objects asked for; the values are the words of the `as` parameter."""

    WHOLE = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"
    METADATA_LIST = "PartialObjectMetadataList"
    DISCOVERY = "APIGroupDiscoveryList"


@dataclass(frozen=True, slots=True)
class Form:
    """How an answer is written: JSON or YAML, and in which shape and version of that shape."""

    media: str = JSON
    shape: Shape = Shape.WHOLE
    version: str = ""

    @property
    def content_type(self) -> str:
        """What the answer is called; only discovery says its shape, tables say it in their `kind`."""
        if self.shape is Shape.DISCOVERY:
            return f"{self.media};g=apidiscovery.k8s.io;v={self.version};as={self.shape}"
        return self.media

    def write(self, text: bytes) -> bytes:
        """A JSON text as this form has it."""
        return text if self.media == JSON else yaml_block(read_json(text)).encode()


PLAIN: Final = Form()


@dataclass(frozen=True, slots=True)
class Offer:
    """What a path can answer with: media types, the best first, and shapes as (shape, group, version)."""

    media: tuple[str, ...] = (JSON, YAML)
    shapes: frozenset[tuple[str, str, str]] = frozenset()


def _shapes(group: str, versions: tuple[str, ...], *shapes: Shape) -> frozenset[tuple[str, str, str]]:
    return frozenset((shape.value, group, version) for shape in shapes for version in versions)


_REDUCED = _shapes("meta.k8s.io", ("v1", "v1beta1"), Shape.TABLE, Shape.METADATA, Shape.METADATA_LIST)

DOCUMENTS: Final = Offer()
"""Something that has one shape."""
OBJECTS: Final = Offer(shapes=_REDUCED)
"""An object or a list of objects."""
WATCHES: Final = Offer((JSON,), _REDUCED)
"""A stream of objects."""
DISCOVERY: Final = Offer(shapes=_shapes("apidiscovery.k8s.io", ("v2", "v2beta1"), Shape.DISCOVERY))
"""The resources there are."""


@lru_cache(maxsize=512)
def negotiate(accept: str, offer: Offer = OBJECTS) -> Form:
    """The form that meets the header best; a `Failure` of 406 when none does."""
    if accept in (JSON, "*/*", ""):
        return PLAIN
    for wish in sorted((_wish(part) for part in accept.split(",")), key=_rank):
        form = _met(wish, offer)
        if form is not None:
            return form
    raise errors.not_acceptable([*offer.media, f"{JSON};stream=watch"])


@dataclass(frozen=True, slots=True)
class _Wish:
    media: str
    quality: float
    shape: tuple[str, str, str]


def _wish(part: str) -> _Wish:
    media, *rest = (piece.strip() for piece in part.split(";"))
    given = {
        name.strip().lower(): value.strip().strip('"') for name, _, value in (p.partition("=") for p in rest)
    }
    shape = (given.get("as", ""), given.get("g", ""), given.get("v", ""))
    return _Wish(media.lower(), _quality(given.get("q", "1")), shape if shape[0] else ("", "", ""))


def _quality(text: str) -> float:
    """A weight between 0 and 1; what is no number weighs nothing."""
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if 0 < weight <= 1 else 0.0


def _rank(wish: _Wish) -> tuple[float, int]:
    return -wish.quality, wish.media.count("*")


def _met(wish: _Wish, offer: Offer) -> Form | None:
    if not wish.quality or (wish.shape[0] and wish.shape not in offer.shapes):
        return None
    kind = wish.media.removesuffix("/*")
    for media in offer.media:
        if wish.media in (media, "*/*") or kind == media.partition("/")[0]:
            return Form(media, Shape(wish.shape[0]), wish.shape[2])
    return None

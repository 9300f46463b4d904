"""How long it takes to read an object: dray (decode, default, validate) beside the Python kubernetes client.

Theory of operation: every implementation reads the same texts. They take turns, a few texts each, so that a
busy or warming machine affects all of them alike. The figure is processor time of the best turn: noise only
ever adds time.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench import material
from dray.api.codec import decode
from dray.api.strategies.defaults import apply_defaults
from dray.api.validation import validate_create

NOW = "2026-01-31T12:00:00Z"
Read = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds for one object."""

    what: str
    who: str
    best: float
    median: float
    bytes: int


def by_dray(data: bytes) -> Any:
    """What an API server does with an object before it decides anything."""
    obj = apply_defaults(decode(data).object, now=NOW)
    errors = validate_create(obj)
    if errors:
        raise ValueError(f"the material is broken: {errors[0]}")
    return obj


def decoded_by_dray(data: bytes) -> Any:
    return decode(data).object


def by_kubernetes(model: str) -> Read | None:
    """The deserialiser of the official client, with its checks; None if it is not installed."""
    try:
        from kubernetes.client import ApiClient
    except ImportError:
        return None
    client = ApiClient()

    def read(data: bytes) -> object:
        return client.deserialize(data.decode(), model, "application/json")

    return read


def measured(what: str, contenders: dict[str, Read], texts: Sequence[bytes], turn: int) -> list[Timing]:
    """Let the contenders take turns over all texts, `turn` of them at a time; each reads each text once."""
    turns: dict[str, list[float]] = {who: [] for who in contenders}
    for start in range(0, len(texts) - turn + 1, turn):
        for who, read in contenders.items():
            turns[who].append(_turn(read, texts[start : start + turn]))
    size = sum(map(len, texts)) // len(texts)
    return [Timing(what, who, min(took), statistics.median(took), size) for who, took in turns.items()]


def _turn(read: Read, texts: Sequence[bytes]) -> float:
    """Milliseconds per text; the garbage of one contender is not collected on another's time."""
    gc.collect()
    gc.disable()
    try:
        began = time.process_time()
        for text in texts:
            read(text)
        return (time.process_time() - began) * 1000 / len(texts)
    finally:
        gc.enable()


def timings(rounds: int) -> list[Timing]:
    """All measurements of objects."""
    slice_model, claim_model = by_kubernetes("V1ResourceSlice"), by_kubernetes("ResourceV1ResourceClaim")
    slices = material.texts(material.slice_document, rounds * 4, seed=1)
    rotating = slices[:8] * (rounds * 2)
    claims = material.texts(material.claim_document, rounds * 50, seed=2)
    new_claims = material.texts(material.new_claim_document, rounds * 10, seed=5)
    warm = (
        material.texts(material.slice_document, 2, seed=3),
        material.texts(material.claim_document, 2, seed=4),
    )
    ours: dict[str, Read] = {
        "dray: decode, default, validate": by_dray,
        "dray: decode alone": decoded_by_dray,
    }
    found: list[Timing] = []
    for what, texts, model, first, turn in (
        ("slice of 128 devices, eight in turns", rotating, slice_model, warm[0], 16),
        ("slice of 128 devices, never seen", slices[8:], slice_model, warm[0], 4),
        ("allocated claim, fifty in turns", claims[:50] * rounds, claim_model, warm[1], 50),
        ("allocated claim, never seen", claims, claim_model, warm[1], 50),
        ("allocated claim, selector never seen", new_claims, claim_model, warm[1], 10),
    ):
        contenders = ours | ({"kubernetes client: deserialize": model} if model else {})
        for read in contenders.values():  # imports and tables are made when they are first needed
            for text in first:
                read(text)
        found += measured(what, contenders, texts, turn)
    return found


def as_documents(found: list[Timing]) -> list[dict[str, Any]]:
    return [asdict(timing) for timing in found]

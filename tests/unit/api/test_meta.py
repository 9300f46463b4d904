"""Shared types: times that exist, opaque fields in one form."""

from __future__ import annotations

import copy
import pickle
from datetime import datetime

import msgspec
import pytest

from dray.api.classic import ClassicClaimSpec, ResourceClass
from dray.api.json_text import write_json
from dray.api.meta import NO_OPAQUE, ApiStruct, Condition, ObjectMeta, Projection, Timestamp
from dray.api.resource import AllocatedDeviceStatus, OpaqueDeviceConfiguration

OPAQUE = [
    (OpaqueDeviceConfiguration, "parameters"),
    (AllocatedDeviceStatus, "data"),
    (ClassicClaimSpec, "parameters"),
    (ResourceClass, "parameters"),
]

TIMES = [
    "2026-01-31T12:00:00Z",
    "2026-01-31T12:00:00.123456789Z",
    "2026-01-31T23:59:59+02:00",
    "0001-01-01T00:00:00Z",
    "2024-02-29T00:00:00Z",
    "2000-02-29T00:00:00Z",
    "2026-11-30T00:00:00-11:30",
]
NO_TIMES = [
    "",
    "2026-01-31",
    "2026-01-31 12:00:00Z",
    "2026-01-31T12:00:00",
    "2026-01-31t12:00:00z",
    "2026-01-31T12:00:00Z\n",
    "2026-01-31T12:00:00+0200",
    "2026-01-31T12:00:00+99:00",
    "2026-01-31T12:00:60Z",
    "2026-01-31T24:00:00Z",
    "2026-02-29T00:00:00Z",
    "1900-02-29T00:00:00Z",
    "2026-02-30T00:00:00Z",
    "2026-04-31T00:00:00Z",
    "2026-13-01T00:00:00Z",
    "2026-00-01T00:00:00Z",
    "2026-01-00T00:00:00Z",
    "0000-01-01T00:00:00Z",
    "0000-02-29T00:00:00Z",
    "٢٠٢٦-01-31T12:00:00Z",
]


@pytest.mark.parametrize("text", TIMES)
def test_a_time_is_rfc_3339(text):
    assert msgspec.convert(text, Timestamp) == text
    assert datetime.fromisoformat(text).tzinfo is not None


@pytest.mark.parametrize("text", NO_TIMES)
def test_what_is_no_time_or_no_day_is_refused(text):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(text, Timestamp)


def test_every_day_of_a_leap_cycle_is_judged_as_the_calendar_does():
    for year in (1896, 1900, 1904, 1999, 2000, 2023, 2024):
        for month in range(1, 13):
            for day in range(1, 32):
                text = f"{year}-{month:02}-{day:02}T00:00:00Z"
                try:
                    datetime.fromisoformat(text)
                except ValueError:
                    with pytest.raises(msgspec.ValidationError):
                        msgspec.convert(text, Timestamp)
                else:
                    msgspec.convert(text, Timestamp)


@pytest.mark.parametrize(("cls", "name"), OPAQUE)
@pytest.mark.parametrize("nothing", [b"", b"null", b" null "])
def test_opaque_parameters_of_nothing_are_not_given(cls, name, nothing):
    holder = cls(**{name: msgspec.Raw(nothing)})
    assert getattr(holder, name) is NO_OPAQUE
    assert name not in msgspec.json.decode(write_json(holder))


@pytest.mark.req("K3063-027")
@pytest.mark.parametrize(("cls", "name"), OPAQUE)
def test_opaque_parameters_keep_every_digit_in_one_spelling(cls, name):
    written = b' { "b" : [ 1.10 , 123456789012345678901234567890.5 ] ,\n "a" : "\\u00e9" } '
    holder = cls(**{name: msgspec.Raw(written)})
    kept = '{"b":[1.10,123456789012345678901234567890.5],"a":"é"}'.encode()
    assert bytes(getattr(holder, name)) == kept
    assert holder == cls(**{name: msgspec.Raw(kept)})


@pytest.mark.parametrize(("cls", "name"), OPAQUE)
@pytest.mark.parametrize(
    "broken", [b"{", b'"\xff"', b"1 2", b"[" * 200 + b"]" * 200, b"1e9999999999999999999"]
)
def test_opaque_parameters_are_json(cls, name, broken):
    with pytest.raises(ValueError):
        cls(**{name: msgspec.Raw(broken)})


@pytest.mark.parametrize(("cls", "name"), OPAQUE)
@pytest.mark.parametrize("raw", [NO_OPAQUE, msgspec.Raw(b"[1]")], ids=["nothing", "something"])
def test_a_copy_is_written_like_the_original(cls, name, raw):
    holder = cls(**{name: raw})
    for again in (copy.copy(holder), copy.deepcopy(holder), pickle.loads(pickle.dumps(holder))):
        assert again == holder
        assert write_json(again) == write_json(holder)


def test_objects_are_frozen():
    with pytest.raises(AttributeError):
        ObjectMeta().name = "other"  # type: ignore[misc]


def test_a_condition_has_its_reason_and_message_even_when_they_are_empty() -> None:
    written = write_json(Condition(type="example.com/attached", status="True"))
    assert msgspec.json.decode(written) == {
        "type": "example.com/attached",
        "status": "True",
        "reason": "",
        "message": "",
    }


def list_subclasses(base: type[msgspec.Struct]) -> set[type[msgspec.Struct]]:
    return {base}.union(*map(list_subclasses, base.__subclasses__()))


@pytest.mark.parametrize("base", [ApiStruct, Projection])
def test_garbage_collection_does_not_visit_api_values(base: type[msgspec.Struct]) -> None:
    assert [found for found in list_subclasses(base) if found.__struct_config__.gc] == []

"""Frames survive any split of the bytes; what is no frame is refused."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.wire.frames import (
    LENGTH_BYTES,
    CancelFrame,
    ClosingFrame,
    ComponentFrame,
    CreditFrame,
    EndFrame,
    FrameDecoder,
    FrameError,
    PartFrame,
    RequestFrame,
    ResponseFrame,
    ServerFrame,
    StreamFrame,
    encode_frame,
)

TEXTS = st.text(max_size=20)
NUMBERS = st.integers(0, 2**63 - 1)
HEADERS = st.dictionaries(TEXTS, TEXTS, max_size=3)
BODIES = st.binary(max_size=200)
COMPONENT_FRAMES = st.one_of(
    st.builds(RequestFrame, NUMBERS, TEXTS, TEXTS, HEADERS, HEADERS, BODIES, st.booleans()),
    st.builds(CancelFrame, NUMBERS),
    st.builds(CreditFrame, NUMBERS, NUMBERS),
)
SERVER_FRAMES = st.one_of(
    st.builds(ResponseFrame, NUMBERS, NUMBERS, HEADERS, BODIES),
    st.builds(StreamFrame, NUMBERS, NUMBERS, HEADERS),
    st.builds(PartFrame, NUMBERS, BODIES),
    st.builds(EndFrame, NUMBERS, TEXTS),
    st.builds(ClosingFrame, TEXTS),
)


def packed(value: object) -> bytes:
    content = msgspec.msgpack.encode(value)
    return len(content).to_bytes(LENGTH_BYTES) + content


def fed(decoder: FrameDecoder[msgspec.Struct], text: bytes, cuts: list[int]) -> list[msgspec.Struct]:
    """What a decoder returns for the pieces of a text between the cuts."""
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return [frame for begin, end in itertools.pairwise(places) for frame in decoder.feed(text[begin:end])]


@given(st.lists(COMPONENT_FRAMES, max_size=5), st.lists(st.integers(0, 2_000), max_size=8))
def test_requests_arrive_however_the_bytes_are_split(frames: list[msgspec.Struct], cuts: list[int]) -> None:
    decoder: FrameDecoder[msgspec.Struct] = FrameDecoder(ComponentFrame)
    assert fed(decoder, b"".join(map(encode_frame, frames)), cuts) == frames
    assert decoder.is_empty


@given(st.lists(SERVER_FRAMES, max_size=5), st.lists(st.integers(0, 2_000), max_size=8))
def test_answers_arrive_however_the_bytes_are_split(frames: list[msgspec.Struct], cuts: list[int]) -> None:
    decoder: FrameDecoder[msgspec.Struct] = FrameDecoder(ServerFrame)
    assert fed(decoder, b"".join(map(encode_frame, frames)), cuts) == frames
    assert decoder.is_empty


@given(st.lists(COMPONENT_FRAMES, min_size=1, max_size=3), st.data())
def test_a_cut_off_frame_is_not_delivered(frames: list[msgspec.Struct], data: st.DataObject) -> None:
    text = b"".join(map(encode_frame, frames))
    missing = data.draw(st.integers(1, len(encode_frame(frames[-1]))))
    decoder: FrameDecoder[msgspec.Struct] = FrameDecoder(ComponentFrame)
    assert decoder.feed(text[:-missing]) == frames[:-1]


@given(st.binary(min_size=1, max_size=300), st.lists(st.integers(0, 300), max_size=4))
def test_whatever_comes_is_a_frame_or_an_error(text: bytes, cuts: list[int]) -> None:
    decoder: FrameDecoder[msgspec.Struct] = FrameDecoder(ComponentFrame, max_bytes=1_000)
    try:
        frames = fed(decoder, len(text).to_bytes(LENGTH_BYTES) + text, cuts)
    except FrameError:
        return
    # Some bytes have several encodings in MessagePack: the value counts.
    assert [type(frame) for frame in frames] in ([RequestFrame], [CancelFrame], [CreditFrame])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(bytes(LENGTH_BYTES), id="an empty frame"),
        pytest.param(packed("GET /"), id="not an array"),
        pytest.param(packed([]), id="an array without a tag"),
        pytest.param(packed([99, 1]), id="an unknown tag"),
        pytest.param(packed([4, 1, 200, {}, b""]), id="a frame of the other side"),
        pytest.param(packed([2]), id="a field is missing"),
        pytest.param(packed([2, 1, "more"]), id="a field too many"),
        pytest.param(packed([2, "1"]), id="a number as text"),
        pytest.param(packed([1, 1, "GET", "/", {"a": 1}, {}, b"", False]), id="a query of numbers"),
        pytest.param(packed([1, 1, "GET", "/", {}, {}, "body", False]), id="a body of text"),
        pytest.param(packed([1, 1, "GET", "/", {}, {}, None, False]), id="no body"),
        pytest.param(b"\0\0\0\5" + b"\x92\x02\xdb\xff\xff", id="a length that reaches beyond the frame"),
        pytest.param(b"\0\0\0\6" + b"\xdd\xff\xff\xff\xff\x01", id="an array of four billion"),
        pytest.param(b"\0\0\0\4" + b"\x92\x02\xa1\xff", id="text that is not UTF-8"),
        pytest.param((5_000).to_bytes(LENGTH_BYTES) + b"\x92" * 5_000, id="arrays inside of arrays"),
        pytest.param(packed([2, 1])[:-1] + b"\xc1", id="a byte that MessagePack does not know"),
        pytest.param((100_001).to_bytes(LENGTH_BYTES), id="a length beyond the limit"),
        pytest.param(b"\xff\xff\xff\xff", id="the longest length"),
        pytest.param(b"GET / HTTP/1.1\r\n", id="another protocol"),
    ],
)
def test_hostile_bytes_are_refused_before_they_are_collected(text: bytes) -> None:
    decoder: FrameDecoder[msgspec.Struct] = FrameDecoder(ComponentFrame, max_bytes=100_000)
    with pytest.raises(FrameError):
        decoder.feed(text)


def test_the_limit_counts_the_contents_of_a_frame() -> None:
    frame = RequestFrame(1, "POST", "/", {}, {}, bytes(100))
    text = encode_frame(frame)
    size = len(text) - LENGTH_BYTES
    decoder: FrameDecoder[msgspec.Struct] = FrameDecoder(ComponentFrame, max_bytes=size)
    assert decoder.feed(text) == [frame]
    with pytest.raises(FrameError, match=f"at most {size - 1} bytes here, not {size}"):
        FrameDecoder(ComponentFrame, max_bytes=size - 1).feed(text[:LENGTH_BYTES])

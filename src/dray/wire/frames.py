"""Frames between the API server and component processes on one machine: encoding, decoding and limits.

Theory of operation: a frame is its length in four bytes and a MessagePack array: a tag, and the fields of one
of the structs below. One socket carries many requests at once; each has a number, given in ascending order by
the component, and what belongs to a request has its number. A request is answered by one response, or by a
stream of parts. A stream has credit, in bytes: the server sends parts while some is left, and the component
gives credit back for what its reader has taken, so a slow reader holds no more than `STREAM_CREDIT` and one
part. Whatever cannot be decoded ends the connection: where the next frame begins is unknown.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

import msgspec

from dray.errors import DrayError

FrameType = TypeVar("FrameType")

LENGTH_BYTES: Final = 4
MAX_FRAME_BYTES: Final = (1 << 32) - 1
"""The longest frame that a length can announce."""
STREAM_CREDIT: Final = 1 << 20
"""Bytes of a stream that may be on their way to a reader."""


class FrameError(DrayError):
    """What came is no frame, or no frame that is allowed here."""


class _Frame(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What all frames have in common: how they are encoded."""


class RequestFrame(_Frame, frozen=True, tag=1):
    """A request of a component. The path is quoted already, the query is not; header names are lower case."""

    number: int
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes = b""
    is_stream: bool = False
    """Whether the component reads the answer as a stream, and may cancel it."""


class CancelFrame(_Frame, frozen=True, tag=2):
    """The component does not read a stream any more."""

    number: int


class CreditFrame(_Frame, frozen=True, tag=3):
    """The reader of a stream has taken so many bytes."""

    number: int
    size: int


ComponentFrame = RequestFrame | CancelFrame | CreditFrame
"""What a component sends."""


class ResponseFrame(_Frame, frozen=True, tag=4):
    """A whole response."""

    number: int
    code: int
    headers: dict[str, str]
    body: bytes = b""


class StreamFrame(_Frame, frozen=True, tag=5):
    """The head of a stream."""

    number: int
    code: int
    headers: dict[str, str]


class PartFrame(_Frame, frozen=True, tag=6):
    """A part of a stream."""

    number: int
    body: bytes


class EndFrame(_Frame, frozen=True, tag=7):
    """The end of a stream; `problem` says why it is not complete."""

    number: int
    problem: str = ""


class ClosingFrame(_Frame, frozen=True, tag=8):
    """Why the server closes the connection; the last frame."""

    problem: str


ServerFrame = ResponseFrame | StreamFrame | PartFrame | EndFrame | ClosingFrame
"""What the server sends."""


def encode_frame(frame: msgspec.Struct) -> bytes:
    """Encode a frame with its length."""
    content = _ENCODER.encode(frame)
    if len(content) > MAX_FRAME_BYTES:
        raise FrameError(f"a frame has at most {MAX_FRAME_BYTES} bytes, not {len(content)}")
    return len(content).to_bytes(LENGTH_BYTES) + content


class FrameDecoder(Generic[FrameType]):
    """Decodes the frames of one type from the chunks that a socket delivers."""

    def __init__(self, frame_type: Any, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._decoder: msgspec.msgpack.Decoder[FrameType] = msgspec.msgpack.Decoder(frame_type)
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    @property
    def is_empty(self) -> bool:
        """Whether no frame has begun."""
        return not self._buffer

    def feed(self, chunk: bytes) -> list[FrameType]:
        """Return the frames that are complete with this chunk; raises a `FrameError`."""
        self._buffer += chunk
        frames: list[FrameType] = []
        begin = 0
        with memoryview(self._buffer) as view:
            while (end := self._find_end(view, begin)) is not None:
                frames.append(self._decode(view[begin + LENGTH_BYTES : end]))
                begin = end
        del self._buffer[:begin]
        return frames

    def _find_end(self, view: memoryview, begin: int) -> int | None:
        """Return where the frame that begins here ends; None when it is not complete."""
        if len(view) - begin < LENGTH_BYTES:
            return None
        length = int.from_bytes(view[begin : begin + LENGTH_BYTES])
        if length > self._max_bytes:
            raise FrameError(f"a frame has at most {self._max_bytes} bytes here, not {length}")
        end = begin + LENGTH_BYTES + length
        return end if end <= len(view) else None

    def _decode(self, content: memoryview) -> FrameType:
        with content:
            try:
                return self._decoder.decode(content)
            except (msgspec.DecodeError, RecursionError) as broken:
                raise FrameError(f"not a frame: {broken}") from None


_ENCODER: Final = msgspec.msgpack.Encoder()

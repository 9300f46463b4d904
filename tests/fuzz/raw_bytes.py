"""Bytes broken on purpose: cut, flipped, nested, in the wrong encoding, or never a manifest at all."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random

from dray.api.json_text import find_non_json_values, write_json
from dray.manifests import to_yaml
from tests.fuzz.mutations import broken
from tests.fuzz.valid_documents import in_every_version, sound

PIECES: tuple[bytes, ...] = (
    b"\x00",
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xef\xbb\xbf",
    b"\xe2\x80\xa8",
    b"\xc2\x85",
    b"1e1000000",
    b"-1E-99999999999999999999",
    b"1" * 5000,
    b"NaN",
    b".nan",
    b"-.inf",
    b"0777",
    b"0x1F",
    b"1_000",
    b"1:30",
    b"2026-01-01",
    b"\\ud800",
    b"\\u0000",
    b"\\x",
    b"null",
    b"~",
    b"on",
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b"'",
    b",",
    b":",
    b": ",
    b"- ",
    b"? ",
    b"#",
    b"\t",
    b"\n",
    b"\r",
    b"\n---\n",
    b"\n...\n",
    b"&a ",
    b"*a",
    b"<<: *a\n",
    b"|\n",
    b">-\n",
    b"!!python/object/apply:os.system [id]",
    b"!!binary aGk=",
    b"!!set {a}",
    b"!custom ",
    b"%YAML 9.9\n---\n",
    b"%TAG ! tag:x,2000:\n---\n",
    b"@",
    b"`",
)
_DEPTHS = (10, 99, 100, 101, 500, 1000, 5000, 50_000)


@cache
def _yaml_pool() -> tuple[bytes, ...]:
    return tuple(to_yaml([document]).encode() for document in in_every_version())


def _text(random: Random) -> bytes:
    """A sound manifest, as JSON or YAML, alone, in a list or among others."""
    draw = random.random()
    if draw < 0.4:
        return write_json(sound(random))
    if draw < 0.5:
        items = [sound(random) for _ in range(random.randrange(3))]
        return write_json({"apiVersion": "v1", "kind": "List", "items": items})
    if draw < 0.6:
        return b"\n---\n".join(random.choice(_yaml_pool()) for _ in range(random.randrange(1, 3)))
    return random.choice(_yaml_pool())


def _whole(random: Random) -> bytes:
    return _text(random)


def _cut(random: Random) -> bytes:
    text = _text(random)
    return text[: random.randrange(len(text) + 1)]


def _flipped(random: Random) -> bytes:
    text = bytearray(_text(random))
    for _ in range(random.choice((1, 1, 2, 5, 20))):
        text[random.randrange(len(text))] ^= 1 << random.randrange(8)
    return bytes(text)


def _spliced(random: Random) -> bytes:
    text = _text(random)
    for _ in range(random.choice((1, 1, 2, 4))):
        start = random.randrange(len(text) + 1)
        end = min(len(text), start + random.choice((0, 0, 1, 2, 10, 100)))
        text = text[:start] + random.choice(PIECES) + text[end:]
    return text


def _shuffled_lines(random: Random) -> bytes:
    lines = random.choice(_yaml_pool()).split(b"\n")
    for _ in range(random.choice((1, 2, 5))):
        i, j = random.randrange(len(lines)), random.randrange(len(lines))
        lines[i], lines[j] = lines[j], lines[i]
    return b"\n".join(lines)


def _doubled_line(random: Random) -> bytes:
    lines = random.choice(_yaml_pool()).split(b"\n")
    i = random.randrange(len(lines))
    return b"\n".join([*lines[: i + 1], *lines[i:]])


def _noise(random: Random) -> bytes:
    return random.randbytes(random.choice((0, 1, 2, 10, 100, 1000)))


def _printable_noise(random: Random) -> bytes:
    letters = b"{}[]\",:'-#&*!|>%@`?~ \n\tabc019.eE+_/\\"
    return bytes(random.choice(letters) for _ in range(random.choice((1, 5, 20, 100))))


def _nested(random: Random) -> bytes:
    depth = random.choice(_DEPTHS)
    pairs = ((b"[", b"]"), (b'{"a":', b"}"), (b"{a: ", b"}"), (b"[{b: ", b"}]"), (b"- ", b""), (b"? ", b""))
    start, end = random.choice(pairs)
    if start in (b"- ", b"? "):
        depth = min(depth, 1000)  # each level is a column further right: the text grows with its square
    value = start * depth + b"1" + (end * depth if random.random() < 0.7 else b"")
    if random.random() < 0.5:
        return value
    head = (
        b'{"apiVersion":"resource.k8s.io/v1","kind":"DeviceClass","metadata":{"name":"x"},"spec":{"config":'
    )
    return head + b'[{"opaque":{"driver":"d","parameters":' + value + b"}}]}}"


def _other_encoding(random: Random) -> bytes:
    text = _text(random).decode("utf-8", "replace")
    return text.encode(random.choice(("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-7", "utf-8-sig")))


def _alias_bomb(random: Random) -> bytes:
    levels, width = random.choice(((3, 5), (9, 10), (20, 3), (2, 200))), random.random() < 0.5
    depth, breadth = levels
    lines = [b"a0: &a0 [x, x]"]
    for i in range(1, depth):
        inner = b", ".join([b"*a%d" % (i - 1)] * breadth)
        lines.append(b"a%d: &a%d %s" % (i, i, b"[" + inner + b"]" if width else b"{k: [" + inner + b"]}"))
    head = b"apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n"
    return head + b"\n".join(lines) + b"\n"


def _broken_document(random: Random) -> bytes:
    document = broken(random)
    # What JSON cannot hold, or only in very many bytes, has its place among the documents.
    return _text(random) if find_non_json_values(document) else write_json(document)


WAYS: tuple[tuple[int, Callable[[Random], bytes]], ...] = (
    (6, _whole),
    (12, _cut),
    (20, _flipped),
    (25, _spliced),
    (5, _shuffled_lines),
    (3, _doubled_line),
    (5, _noise),
    (6, _printable_noise),
    (3, _nested),
    (3, _other_encoding),
    (2, _alias_bomb),
    (10, _broken_document),
)
_WEIGHTS = [weight for weight, _ in WAYS]
_MAKERS = [make for _, make in WAYS]


def raw(random: Random) -> bytes:
    """Bytes that are a manifest, nearly one, or nothing like one."""
    return random.choices(_MAKERS, _WEIGHTS)[0](random)

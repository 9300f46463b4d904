"""Decoding of bytes, lines, positions."""

from __future__ import annotations

import pytest

from dray.errors import InputError
from dray.manifests.source import ManifestReadError, ManifestSource, TextPosition, render_excerpt


def test_a_byte_order_mark_is_not_part_of_the_text() -> None:
    assert ManifestSource.decode("f", b"\xef\xbb\xbfa: 1").text == "a: 1"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_with_a_byte_order_mark_is_decoded(encoding: str) -> None:
    assert ManifestSource.decode("f", "\ufeffa: ü\n".encode(encoding)).text == "a: ü\n"


@pytest.mark.parametrize(
    ("data", "place", "words"),
    [
        (b"a: 1\nb: \xff\n", (2, 4), "not UTF-8 text: byte 0xff"),
        (b"a: \x00", (1, 4), "U+0000"),
        (b"a: 1\r\nbc: \x1b[0m", (2, 5), "U+001B"),
        ("\ufeffa: ".encode("utf-16-le") + b"\x00\xd8", (1, 5), "UTF-16-LE"),
    ],
)
def test_what_no_manifest_may_hold(data: bytes, place: tuple[int, int], words: str) -> None:
    with pytest.raises(ManifestReadError) as caught:
        ManifestSource.decode("dir/file.yaml", data)
    assert caught.value.position == TextPosition(*place)
    assert words in caught.value.problem
    assert str(caught.value).startswith(f"dir/file.yaml:{place[0]}:{place[1]}: ")
    assert isinstance(caught.value, InputError)


def test_lines_are_counted_as_yaml_counts_them() -> None:
    source = ManifestSource("f", "one\r\ntwo\rthree\nfour\u2028five")
    assert [source.get_line(n) for n in range(7)] == ["", "one", "two", "three", "four", "five", ""]
    assert source.get_position(source.text.index("five")) == (5, 1)
    assert source.get_position(source.text.index("wo")) == (2, 2)


def test_an_error_shows_its_line() -> None:
    broken = ManifestSource("f", "a: 1\nb: @\n").build_error(8, "no")
    assert (broken.position, broken.line) == ((2, 4), "b: @")


def test_a_caret_is_printed_below_its_column() -> None:
    assert render_excerpt("name: Gpu", 7) == ("name: Gpu", "      ^")
    assert render_excerpt("\tname: x", 2) == (" name: x", " ^")


def test_a_long_line_is_cut_around_its_caret() -> None:
    line = "x" * 500 + "HERE" + "y" * 500
    shown, caret = render_excerpt(line, 501)
    assert len(shown) <= 160
    assert shown[caret.index("^") :].startswith("HERE")


def test_a_caret_never_leaves_its_line() -> None:
    assert render_excerpt("ab", 40) == ("ab", "  ^")

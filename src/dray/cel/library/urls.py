"""URLs, read as Go's `net/url` reads a request URI: absolute, or a path that starts with a slash."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from dray.cel import types as t
from dray.cel.declarations import declare_function, declare_member_overload, declare_overload
from dray.cel.equality import STRICT_TYPES
from dray.cel.faults import CelError
from dray.cel.values import TYPE_NAMES_BY_CLASS

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PORT = re.compile(r"(?::[0-9]*)?", re.ASCII)
_USER = re.compile(r"[A-Za-z0-9._:~!$&'()*+,;=%@-]*")
_BAD_HOST = re.compile(r"[\x00-\x20\"#/<>?@\\^`{|}\x7f]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ESCAPE = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_KEPT_IN_PATH: Final = frozenset(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~$&+,/:;=@!'()*[]%"
)


class UrlError(ValueError):
    """Why a text is no URL."""


@dataclass(frozen=True, slots=True)
class Url:
    """The parts of a URL, as they were written."""

    scheme: str
    host: str
    path: str
    query: str

    @property
    def hostname(self) -> str:
        """The host without port and brackets."""
        if self.host.startswith("["):
            return self.host[1:].partition("]")[0]
        return self.host.partition(":")[0]

    @property
    def port(self) -> str:
        """The port, or nothing."""
        return self.host.rpartition("]")[2].partition(":")[2]

    @property
    def escaped_path(self) -> str:
        """The path with everything escaped that must be."""
        raw = self.path.encode("utf-8", "replace")
        return "".join(chr(one) if one in _KEPT_IN_PATH else f"%{one:02X}" for one in raw)

    def parse_query(self) -> dict[str, tuple[str, ...]]:
        """The query as keys with all their values; pieces that are broken are left out."""
        result: dict[str, tuple[str, ...]] = {}
        for piece in self.query.split("&"):
            if not piece or ";" in piece or _BAD_ESCAPE.search(piece):
                continue
            key, _, value = piece.partition("=")
            name = _unescape(key.replace("+", " "))
            result[name] = (*result.get(name, ()), _unescape(value.replace("+", " ")))
        return result


TYPE_NAMES_BY_CLASS[Url] = t.URL.name
STRICT_TYPES[Url] = "url"


def parse_url(text: str) -> Url:
    """Read a URL; `ValueError` says why it is none."""
    if _CONTROL.search(text):
        raise UrlError("invalid control character in URL")
    if not text:
        raise UrlError("empty url")
    if text == "*":
        return Url("", "", "*", "")
    scheme, rest = _split_scheme(text.partition("#")[0])
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if not scheme:
            raise UrlError("invalid URI for request")
        return Url(scheme, "", "", query)
    host = ""
    if scheme and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        host, rest = _check_host(authority), slash + path
    if _BAD_ESCAPE.search(rest):
        raise UrlError("invalid URL escape")
    return Url(scheme, host, rest, query)


def _split_scheme(text: str) -> tuple[str, str]:
    match = _SCHEME.fullmatch(text)
    if match is not None:
        return match[1].lower(), match[2]
    if text.startswith(":"):
        raise UrlError("missing protocol scheme")
    return "", text


def _check_host(authority: str) -> str:
    user, at, host = authority.rpartition("@")
    if at and (not _USER.fullmatch(user) or _BAD_ESCAPE.search(user)):
        raise UrlError("net/url: invalid userinfo")
    if host.startswith("["):
        inside, bracket, port = host.partition("]")
        if not bracket:
            raise UrlError("missing ']' in host")
    else:
        inside, colon, after = host.partition(":")
        port = colon + after
    if not _PORT.fullmatch(port):
        raise UrlError(f'invalid port "{port[:64]}" after host')
    if _BAD_HOST.search(inside) or "%" in inside:
        raise UrlError("invalid character in host name")
    return host


def _unescape(text: str) -> str:
    return _ESCAPE.sub(
        lambda match: bytes.fromhex(match[0].replace("%", "")).decode("utf-8", "replace"), text
    )


def _convert_to_url(text: str) -> Url:
    try:
        return parse_url(text)
    except UrlError as bad:
        raise CelError(f"URL parse error during conversion from string: {bad}") from None


def _is_url(text: str) -> bool:
    try:
        parse_url(text)
    except UrlError:
        return False
    return True


_U: Final = (t.URL,)

LIBRARY: Final = (
    declare_function("url", declare_overload("string_to_url", (t.STRING,), t.URL, _convert_to_url)),
    declare_function("isURL", declare_overload("is_url_string", (t.STRING,), t.BOOL, _is_url)),
    declare_function(
        "getScheme", declare_member_overload("url_get_scheme", _U, t.STRING, lambda one: one.scheme)
    ),
    declare_function("getHost", declare_member_overload("url_get_host", _U, t.STRING, lambda one: one.host)),
    declare_function(
        "getHostname", declare_member_overload("url_get_hostname", _U, t.STRING, lambda one: one.hostname)
    ),
    declare_function("getPort", declare_member_overload("url_get_port", _U, t.STRING, lambda one: one.port)),
    declare_function(
        "getEscapedPath",
        declare_member_overload("url_get_escaped_path", _U, t.STRING, lambda one: one.escaped_path),
    ),
    declare_function(
        "getQuery",
        declare_member_overload(
            "url_get_query", _U, t.make_map_type(t.STRING, t.make_list_type(t.STRING)), Url.parse_query
        ),
    ),
)

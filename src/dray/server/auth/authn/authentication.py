"""Who asks: the user behind the credentials of a request.

Theory of operation: a bearer token speaks first; a request with a bad one is turned away even when it also
shows a certificate, because somebody meant that token to count. A certificate was checked by TLS, against our
own authority, before the request was read; here only its names and its end are read. Without credentials a
request is turned away, except where the doors stand open to everybody: health, version, and the keys that
check tokens.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from dray.clock import Clock, SystemClock
from dray.server.auth.authn.service_account_tokens import AccountTokens
from dray.server.auth.authn.token_file import StaticTokens
from dray.server.http.errors import unauthorized
from dray.server.http.requests import AUTHENTICATED, NOBODY, UNAUTHENTICATED, User

OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version", "/openid", "/.well-known/openid-configuration")
"""What everybody may ask, and everything below."""

Peer = Mapping[str, Any]
"""A verified client certificate, as `ssl.SSLObject.getpeercert` tells it."""


class Authenticator:
    """Finds out who asks."""

    def __init__(
        self,
        static: StaticTokens | None = None,
        accounts: AccountTokens | None = None,
        *,
        anonymous: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._static = static or StaticTokens()
        self._accounts = accounts
        self._anonymous = anonymous
        self._clock = clock or SystemClock()

    def identify(self, headers: Mapping[str, str], peer: Peer | None, path: str = "") -> User:
        """The user of a request; `headers` have lower-case names. Raises 401."""
        credentials = headers.get("authorization")
        if credentials is not None:
            found = self.bearer(_bearer_token(credentials))
            user = None if found is None else authenticated(found)
        elif peer:
            user = self._certified(peer)
        elif self._anonymous or is_open(path):
            return NOBODY
        else:
            user = None
        if user is None:
            raise unauthorized()
        return user

    def bearer(self, token: str | None) -> User | None:
        """Whose token it is, if it is anybody's and good."""
        if not token:
            return None
        user = self._static.find(token)
        if user is None and self._accounts is not None:
            verified = self._accounts.verify(token)
            user = None if verified is None else verified.user
        return user

    def _certified(self, peer: Peer) -> User | None:
        end = peer.get("notAfter")
        # A connection may outlive the certificate it began with.
        if not end or self._is_over(end):
            return None
        return _subject(peer.get("subject", ()))

    def _is_over(self, end: str) -> bool:
        return _seconds(end) <= self._clock.now().timestamp()


@lru_cache(maxsize=4096)
def _seconds(end: str) -> float:
    """The end of a certificate; asked with every request of a connection, and slow to read."""
    return ssl.cert_time_to_seconds(end)


@lru_cache(maxsize=4096)
def _subject(subject: tuple[tuple[tuple[str, str], ...], ...]) -> User | None:
    """Whom a certificate names; None when it is not one somebody."""
    names: dict[str, list[str]] = {}
    for part in subject:
        for field, value in part:
            names.setdefault(field, []).append(value)
    common = names.get("commonName", [])
    if len(common) != 1 or not common[0]:
        return None
    return authenticated(User(common[0], tuple(names.get("organizationName", ()))))


def is_open(path: str) -> bool:
    """Whether everybody may ask for this path."""
    return any(path == door or path.startswith(door + "/") for door in OPEN_PATHS)


def authenticated(user: User) -> User:
    """The user with the group of everybody who showed who they are, and not of those who did not."""
    groups = [group for group in user.groups if group not in (AUTHENTICATED, UNAUTHENTICATED)]
    return replace(user, groups=(*dict.fromkeys(groups), AUTHENTICATED))


def _bearer_token(credentials: str) -> str | None:
    scheme, _, token = credentials.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None

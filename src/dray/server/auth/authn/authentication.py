"""Authentication: maps the credentials of a request to a user.

Theory of operation: a bearer token comes first; a request with an invalid one is refused even when it also
presents a certificate, because the client meant that token to count. TLS has verified a certificate against
the server's CA before the request was read; here only its names and its expiry are read. A request without
credentials is refused, except for public paths: health, version, and the keys that verify tokens.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from dray.clock import Clock, SystemClock
from dray.server.auth.authn.service_account_tokens import ServiceAccountTokens
from dray.server.auth.authn.token_file import StaticTokens
from dray.server.http.errors import new_unauthorized
from dray.server.http.requests import ANONYMOUS_USER, AUTHENTICATED, UNAUTHENTICATED, RequestUser

PUBLIC_PATHS = ("/healthz", "/livez", "/readyz", "/version", "/openid", "/.well-known/openid-configuration")
"""Paths that need no credentials, and everything below."""

PeerCertificate = Mapping[str, Any]
"""A verified client certificate, as `ssl.SSLObject.getpeercert` returns it."""


class Authenticator:
    """Finds the user of a request."""

    def __init__(
        self,
        static_tokens: StaticTokens | None = None,
        account_tokens: ServiceAccountTokens | None = None,
        *,
        anonymous: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._static_tokens = static_tokens or StaticTokens()
        self._account_tokens = account_tokens
        self._anonymous = anonymous
        self._clock = clock or SystemClock()

    def authenticate(
        self, headers: Mapping[str, str], peer: PeerCertificate | None, path: str = ""
    ) -> RequestUser:
        """Return the user of a request; `headers` have lower-case names. Raises 401."""
        credentials = headers.get("authorization")
        if credentials is not None:
            found = self.authenticate_token(_parse_bearer_token(credentials))
            user = None if found is None else add_authenticated_group(found)
        elif peer:
            user = self._authenticate_certificate(peer)
        elif self._anonymous or is_public_path(path):
            return ANONYMOUS_USER
        else:
            user = None
        if user is None:
            raise new_unauthorized()
        return user

    def authenticate_token(self, token: str | None) -> RequestUser | None:
        """Return the user of a token, None when it is not valid."""
        if not token:
            return None
        user = self._static_tokens.find(token)
        if user is None and self._account_tokens is not None:
            verified = self._account_tokens.verify(token)
            user = None if verified is None else verified.user
        return user

    def _authenticate_certificate(self, peer: PeerCertificate) -> RequestUser | None:
        end = peer.get("notAfter")
        # A connection may outlive the certificate it began with.
        if not end or self._has_expired(end):
            return None
        return _parse_subject(peer.get("subject", ()))

    def _has_expired(self, end: str) -> bool:
        return _parse_expiry(end) <= self._clock.now().timestamp()


@lru_cache(maxsize=4096)
def _parse_expiry(end: str) -> float:
    """Parse the expiry of a certificate; needed for every request of a connection, and slow to parse."""
    return ssl.cert_time_to_seconds(end)


@lru_cache(maxsize=4096)
def _parse_subject(subject: tuple[tuple[tuple[str, str], ...], ...]) -> RequestUser | None:
    """Return the user that a certificate names; None when it does not name exactly one."""
    names: dict[str, list[str]] = {}
    for part in subject:
        for field, value in part:
            names.setdefault(field, []).append(value)
    common = names.get("commonName", [])
    if len(common) != 1 or not common[0]:
        return None
    return add_authenticated_group(RequestUser(common[0], tuple(names.get("organizationName", ()))))


def is_public_path(path: str) -> bool:
    """Return whether a path needs no credentials."""
    return any(path == public or path.startswith(public + "/") for public in PUBLIC_PATHS)


def add_authenticated_group(user: RequestUser) -> RequestUser:
    """Return the user with the group of authenticated users, unless the user is anonymous."""
    groups = [group for group in user.groups if group not in (AUTHENTICATED, UNAUTHENTICATED)]
    return replace(user, groups=(*dict.fromkeys(groups), AUTHENTICATED))


def _parse_bearer_token(credentials: str) -> str | None:
    scheme, _, token = credentials.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None

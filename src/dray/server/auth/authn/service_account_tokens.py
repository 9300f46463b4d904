"""Tokens of service accounts: signed by the server, with an expiry, and bound to objects.

Theory of operation: a token is a JWT that names the account, its uid, and maybe an object it is bound to (a
pod, a node, a secret). It is valid if the server's key signed it with the server's algorithm, if now is
between its times, if it is meant for one of the server's audiences, and if account and bound object still
exist with the same uids. So deleting the account or the object revokes a token; there is no list of revoked
tokens.

Verifying a signature is slow, so the claims of a token are cached under its digest; everything that can
change is checked each time. Account and object are only looked up when the signature is valid, so that the
server does not disclose which accounts exist.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import jwt
from jwt.algorithms import ECAlgorithm

from dray.api.kinds import Kind, get_kind
from dray.clock import Clock, SystemClock
from dray.server.auth.authn.private_keys import load_or_create_key
from dray.server.auth.authn.secret_files import lock_directory, prepare_key_directory
from dray.server.auth.authn.token_file import MAX_TOKEN_LENGTH
from dray.server.http.requests import RequestUser
from dray.server.objects.stored_object import StoredObject
from dray.server.watch.cache import WatchCache
from dray.x509_certificates import PrivateKey

ISSUER = "https://kubernetes.default.svc.cluster.local"
SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"
SERVICE_ACCOUNTS_GROUP = "system:serviceaccounts"

EXTRA_PREFIX = "authentication.kubernetes.io/"
NODE_NAME_EXTRA = EXTRA_PREFIX + "node-name"
"""The extra of a user that names the node its token is used on."""

MIN_LIFETIME, MAX_LIFETIME = timedelta(minutes=10), timedelta(days=365)

_ALGORITHM = "ES256"
_MAX_CACHED_TOKENS = 10_000
_SKEW = timedelta(seconds=10)
_REQUIRED_CLAIMS = ("iss", "sub", "aud", "exp", "nbf", "iat")


_ACCOUNT = get_kind("", "ServiceAccount")
BINDABLE_KINDS: Mapping[str, Kind] = {name: get_kind("", name) for name in ("Pod", "Node", "Secret")}
"""Kinds that a token can be bound to."""


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A new token and its expiry."""

    token: str = field(repr=False)
    expires: datetime


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """The user of a token, and which of the requested audiences it is meant for."""

    user: RequestUser
    audiences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IssuerOptions:
    """The issuer, and the default audiences of tokens."""

    issuer: str = ISSUER
    audiences: tuple[str, ...] = (ISSUER,)


class ServiceAccountTokens:
    """Issues and verifies tokens of service accounts."""

    def __init__(self, key: PrivateKey, cache: WatchCache, options: IssuerOptions, clock: Clock) -> None:
        self._key = key
        self._cache = cache
        self._clock = clock
        self.options = options
        self._claims_cache: OrderedDict[bytes, Mapping[str, Any]] = OrderedDict()
        public: dict[str, Any] = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        self._key_id = sha256(f"{public['x']}.{public['y']}".encode()).hexdigest()[:32]
        self._public_jwk = public | {"use": "sig", "alg": _ALGORITHM, "kid": self._key_id}

    @classmethod
    def open(
        cls,
        directory: Path,
        cache: WatchCache,
        options: IssuerOptions | None = None,
        clock: Clock | None = None,
    ) -> ServiceAccountTokens:
        """Open with the key in the directory, which is created if it does not exist."""
        prepare_key_directory(directory)
        with lock_directory(directory):
            key = load_or_create_key(directory / "service-account.key")
        return cls(key, cache, options or IssuerOptions(), clock or SystemClock())

    def build_jwks(self) -> dict[str, Any]:
        """Build the public key set for others who verify tokens (`/openid/v1/jwks`)."""
        return {"keys": [self._public_jwk]}

    def build_openid_configuration(self) -> dict[str, Any]:
        """Build `/.well-known/openid-configuration`."""
        return {
            "issuer": self.options.issuer,
            "jwks_uri": f"{self.options.issuer}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [_ALGORITHM],
        }

    def issue(
        self,
        account: StoredObject,
        lifetime: timedelta,
        audiences: Sequence[str] = (),
        bound: StoredObject | None = None,
    ) -> IssuedToken:
        """Issue a token for an account, optionally bound to an object."""
        now = self._clock.now().replace(microsecond=0)
        expires = now + min(max(lifetime, MIN_LIFETIME), MAX_LIFETIME)
        about: dict[str, Any] = {
            "namespace": account.namespace,
            "serviceaccount": {"name": account.name, "uid": account.metadata.uid},
        }
        if bound is not None:
            about |= self._build_bound_claims(bound)
        claims = {
            "iss": self.options.issuer,
            "sub": f"{SERVICE_ACCOUNT_PREFIX}{account.namespace}:{account.name}",
            "aud": list(audiences or self.options.audiences),
            "exp": int(expires.timestamp()),
            "iat": int(now.timestamp()),
            "nbf": int(now.timestamp()),
            "jti": str(uuid4()),
            "kubernetes.io": about,
        }
        token = jwt.encode(claims, self._key, algorithm=_ALGORITHM, headers={"kid": self._key_id})
        return IssuedToken(token, expires)

    def verify(self, token: str, audiences: Sequence[str] = ()) -> VerifiedToken | None:
        """Verify a token: valid now, and meant for one of the audiences (by default the server's)."""
        claims = self._read_claims(token)
        if claims is None or not self._is_within_validity(claims):
            return None
        wanted = audiences or self.options.audiences
        meant = tuple(audience for audience in wanted if audience in claims["aud"])
        user = self._resolve_user(claims) if meant else None
        return None if user is None else VerifiedToken(user, meant)

    def _build_bound_claims(self, bound: StoredObject) -> dict[str, Any]:
        about: dict[str, Any] = {
            bound.kind.name.lower(): {"name": bound.name, "uid": bound.metadata.uid},
        }
        if bound.kind.name == "Pod":
            node = self._cache.get(
                BINDABLE_KINDS["Node"], "", bound.document.get("spec", {}).get("nodeName", "")
            )
            if node is not None:
                about["node"] = {"name": node.name, "uid": node.metadata.uid}
        return about

    def _read_claims(self, token: str) -> Mapping[str, Any] | None:
        """Return the claims of a token that the server signed."""
        if len(token) > MAX_TOKEN_LENGTH or token.count(".") != 2:
            return None
        digest = sha256(token.encode(errors="surrogateescape")).digest()
        known = self._claims_cache.get(digest)
        if known is None:
            known = self._decode_claims(token)
            if known is None:
                return None
            self._claims_cache[digest] = known
            while len(self._claims_cache) > _MAX_CACHED_TOKENS:
                self._claims_cache.popitem(last=False)
        return known

    def _decode_claims(self, token: str) -> Mapping[str, Any] | None:
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                self._key.public_key(),
                algorithms=[_ALGORITHM],
                issuer=self.options.issuer,
                options={
                    "require": list(_REQUIRED_CLAIMS),
                    # Times and audiences are checked each time the token is used, by the server's clock.
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_aud": False,
                },
            )
        except (jwt.PyJWTError, ValueError, RecursionError):
            return None
        sound = all(isinstance(claims[name], int) for name in ("exp", "nbf"))
        return claims if sound and isinstance(claims["aud"], list) else None

    def _is_within_validity(self, claims: Mapping[str, Any]) -> bool:
        now = self._clock.now()
        begins = datetime.fromtimestamp(claims["nbf"], UTC) - _SKEW
        return begins <= now < datetime.fromtimestamp(claims["exp"], UTC)

    def _resolve_user(self, claims: Mapping[str, Any]) -> RequestUser | None:
        about = claims.get("kubernetes.io", {})
        namespace, account = about.get("namespace", ""), about.get("serviceaccount", {})
        name, uid = account.get("name", ""), account.get("uid", "")
        if claims["sub"] != f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}":
            return None
        if not self._is_same_object(_ACCOUNT, namespace, account):
            return None
        for kind, bound in _find_bound_objects(about):
            if not self._is_same_object(kind, namespace if kind.namespaced else "", bound):
                return None
        groups = (SERVICE_ACCOUNTS_GROUP, f"{SERVICE_ACCOUNTS_GROUP}:{namespace}")
        return RequestUser(claims["sub"], groups, uid, _build_extra(claims, about))

    def _is_same_object(self, kind: Kind, namespace: str, expected: Mapping[str, str]) -> bool:
        """Return whether the object exists with the same uid, and is not another of the same name."""
        stored = self._cache.get(kind, namespace, expected.get("name", ""))
        return stored is not None and bool(expected.get("uid")) and stored.metadata.uid == expected["uid"]


def _find_bound_objects(about: Mapping[str, Any]) -> list[tuple[Kind, Mapping[str, str]]]:
    """List what must still exist: the object a token is bound to.

    A pod's node is information, not a binding: the pod is deleted when its node is.
    """
    pod = about.get("pod")
    if pod is not None:
        return [(BINDABLE_KINDS["Pod"], pod)]
    return [(kind, about[name.lower()]) for name, kind in BINDABLE_KINDS.items() if name.lower() in about]


def _build_extra(claims: Mapping[str, Any], about: Mapping[str, Any]) -> Mapping[str, tuple[str, ...]]:
    extra: dict[str, tuple[str, ...]] = {}
    if "jti" in claims:
        extra[EXTRA_PREFIX + "credential-id"] = (f"JTI={claims['jti']}",)
    for name in ("pod", "node"):
        if name in about:
            extra[f"{EXTRA_PREFIX}{name}-name"] = (about[name]["name"],)
            extra[f"{EXTRA_PREFIX}{name}-uid"] = (about[name]["uid"],)
    return MappingProxyType(extra)

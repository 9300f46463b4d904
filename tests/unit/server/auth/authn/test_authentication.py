"""Credentials: every invalid one is a 401, whatever else the request presents."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest

from dray.clock import ManualClock
from dray.server.auth.authn.authentication import Authenticator
from dray.server.auth.authn.private_keys import read_key
from dray.server.auth.authn.secret_files import CredentialError
from dray.server.auth.authn.service_account_tokens import IssuerOptions, ServiceAccountTokens
from dray.server.auth.authn.token_file import MAX_TOKEN_LENGTH, StaticTokens
from dray.server.http.errors import ApiStatusError
from dray.server.http.requests import ANONYMOUS_USER, RequestUser
from dray.server.objects.stored_object import StoredObject
from dray.x509_certificates import generate_key
from tests.unit.server.auth.cluster_state import ClusterState, pod, store_object, thing

START = datetime(2026, 3, 1, tzinfo=UTC)
ACCOUNT = thing("v1", "ServiceAccount", "driver", "gpu-system", uid="u-account")
NODE = thing("v1", "Node", "n1", uid="u-node")
POD = pod("p1", "gpu-system", "n1", uid="u-pod")
PEER = {
    "subject": ((("organizationName", "team:a"),), (("commonName", "jane"),)),
    "notAfter": "Mar  2 00:00:00 2026 GMT",
}


@dataclass
class Place:
    world: ClusterState
    clock: ManualClock
    tokens: ServiceAccountTokens
    authenticator: Authenticator
    folder: Path

    def issue(self, bound: Mapping[str, Any] | None = None, **more: Any) -> str:
        held: StoredObject | None = None if bound is None else store_object(bound)
        return self.tokens.issue(store_object(ACCOUNT), timedelta(hours=1), bound=held, **more).token

    def forged(self, token: str, *, key: Any = None, algorithm: str = "ES256", **claims: Any) -> str:
        """The same token with other claims, signed with another key or our own."""
        said = jwt.decode(token, options={"verify_signature": False}) | claims
        said = {name: value for name, value in said.items() if value is not None}
        own: Any = read_key(self.folder / "service-account.key")
        return jwt.encode(said, key or own, algorithm=algorithm)


@pytest.fixture
def place(tmp_path) -> Iterator[Place]:
    with ClusterState([ACCOUNT, NODE, POD], roles=False) as world:
        clock = ManualClock(START)
        tokens = ServiceAccountTokens.open(tmp_path, world.cache, clock=clock)
        static = StaticTokens({"s3cret": RequestUser("jane", ("team:a",), "u1")})
        yield Place(world, clock, tokens, Authenticator(static, tokens, clock=clock), tmp_path)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def turned_away(
    authenticator: Authenticator, headers: Mapping[str, str], peer: Any = None, path: str = "/api"
) -> bool:
    try:
        authenticator.authenticate(headers, peer, path)
    except ApiStatusError as failure:
        return (failure.code, failure.message) == (401, "Unauthorized")
    return False


# --- good ones ---


def test_a_token_of_the_file_names_a_user(place):
    user = place.authenticator.authenticate(bearer("s3cret"), None)
    assert user == RequestUser("jane", ("team:a", "system:authenticated"), "u1")


def test_a_token_of_an_account_names_it_and_where_it_runs(place):
    user = place.authenticator.authenticate(bearer(place.issue(POD)), None)
    assert user.name == "system:serviceaccount:gpu-system:driver"
    assert user.uid == "u-account"
    assert user.groups == (
        "system:serviceaccounts",
        "system:serviceaccounts:gpu-system",
        "system:authenticated",
    )
    extra = {name.rpartition("/")[2]: values for name, values in user.extra.items()}
    assert extra.pop("credential-id")[0].startswith("JTI=")
    assert extra == {
        "pod-name": ("p1",),
        "pod-uid": ("u-pod",),
        "node-name": ("n1",),
        "node-uid": ("u-node",),
    }


def test_a_certificate_names_a_user(place):
    assert place.authenticator.authenticate({}, PEER) == RequestUser(
        "jane", ("team:a", "system:authenticated")
    )


@pytest.mark.parametrize("path", ["/healthz", "/livez/ping", "/readyz", "/version", "/openid/v1/jwks"])
def test_public_paths_need_no_credentials(place, path):
    assert place.authenticator.authenticate({}, None, path) is ANONYMOUS_USER


def test_everybody_is_let_in_where_that_is_wanted():
    assert Authenticator(anonymous=True).authenticate({}, None, "/api/v1/pods") is ANONYMOUS_USER


def test_the_groups_of_authentication_cannot_be_impersonated(place):
    authenticator = Authenticator(
        StaticTokens({"t": RequestUser("joe", ("system:unauthenticated", "system:authenticated"))})
    )
    assert authenticator.authenticate(bearer("t"), None).groups == ("system:authenticated",)


# --- bad ones ---


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": "Basic amFuZTpzM2NyZXQ="},
        {"authorization": "s3cret"},
        {"authorization": "Bearer s3cre"},
        {"authorization": "Bearer s3crett"},
        {"authorization": "Bearer S3CRET"},
        {"authorization": "Bearer s3cret, Bearer s3cret"},
        {"authorization": "Bearer " + "x" * (MAX_TOKEN_LENGTH + 1)},
        {"authorization": "Bearer a.b.c"},
        {"authorization": "Bearer ..."},
        {"authorization": "Bearer \udcff.\udcff.x"},
    ],
)
def test_requests_without_a_valid_token_are_refused(place, headers):
    assert turned_away(place.authenticator, headers)


@pytest.mark.parametrize("path", ["/healthzz", "/versions", "/metrics", "/api", "/", "/openid2"])
def test_paths_beside_the_public_ones_need_credentials(place, path):
    assert turned_away(place.authenticator, {}, path=path)


def test_an_invalid_token_is_refused_despite_a_certificate_or_a_public_path(place):
    assert turned_away(place.authenticator, bearer("wrong"), PEER)
    assert turned_away(place.authenticator, bearer("wrong"), path="/healthz")


def _of_another_server(place: Place, token: str) -> str:
    other = ServiceAccountTokens(generate_key(), place.world.cache, IssuerOptions(), place.clock)
    return other.issue(store_object(ACCOUNT), timedelta(hours=1)).token


def _alg_none(place: Place, token: str) -> str:
    said = jwt.decode(token, options={"verify_signature": False})
    parts = [{"alg": "none", "typ": "JWT"}, said]
    written = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*written, ""])


def _public_key_as_secret(place: Place, token: str) -> str:
    secret = json.dumps(place.tokens.build_jwks()["keys"][0])
    return place.forged(token, key=secret.encode() * 2, algorithm="HS256")


def _cut(place: Place, token: str) -> str:
    return token[:-4]


def _other_name(place: Place, token: str) -> str:
    """The signature of one token under the claims of another."""
    said = jwt.decode(token, options={"verify_signature": False})
    said["sub"] = "system:serviceaccount:kube-system:root"
    head, _, sign = token.split(".")
    body = base64.urlsafe_b64encode(json.dumps(said).encode()).rstrip(b"=").decode()
    return f"{head}.{body}.{sign}"


BAD_TOKENS = {
    "signed by another server": _of_another_server,
    "alg none": _alg_none,
    "our public key as a secret": _public_key_as_secret,
    "cut": _cut,
    "claims exchanged": _other_name,
    "not yet good": lambda place, token: place.forged(token, nbf=int(START.timestamp()) + 60),
    "expired": lambda place, token: place.forged(token, exp=int(START.timestamp())),
    "without end": lambda place, token: place.forged(token, exp=None),
    "without audience": lambda place, token: place.forged(token, aud=None),
    "for somebody else": lambda place, token: place.issue(audiences=["https://vault.example.com"]),
    "of another issuer": lambda place, token: place.forged(token, iss="https://elsewhere.example.com"),
    "another subject than account": lambda place, token: place.forged(token, sub="system:masters"),
    "no account": lambda place, token: place.forged(token, **{"kubernetes.io": {}}),
    "oversized": lambda place, token: place.forged(token, padding="x" * MAX_TOKEN_LENGTH),
}


@pytest.mark.parametrize("what", BAD_TOKENS)
def test_a_bad_token_of_an_account_is_turned_away(place, what):
    good = place.issue()
    assert not turned_away(place.authenticator, bearer(good))
    assert turned_away(place.authenticator, bearer(BAD_TOKENS[what](place, good)))


def test_a_token_ends_though_it_was_seen_before(place):
    token = place.issue()
    place.authenticator.authenticate(bearer(token), None)
    place.clock.advance(3599)
    assert not turned_away(place.authenticator, bearer(token))
    place.clock.advance(1)
    assert turned_away(place.authenticator, bearer(token))


@pytest.mark.parametrize(
    "gone",
    [
        lambda world: world.delete(ACCOUNT),
        lambda world: world.put({**ACCOUNT, "metadata": {**ACCOUNT["metadata"], "uid": "u-again"}}),
        lambda world: world.delete(POD),
        lambda world: world.put({**POD, "metadata": {**POD["metadata"], "uid": "u-again"}}),
    ],
    ids=["account deleted", "account made again", "pod deleted", "pod made again"],
)
def test_a_token_is_taken_back_with_what_it_belongs_to(place, gone):
    token = place.issue(POD)
    assert not turned_away(place.authenticator, bearer(token))
    gone(place.world)
    assert turned_away(place.authenticator, bearer(token))


def test_a_token_of_a_deleted_account_stays_invalid_when_the_account_is_recreated(place):
    token = place.issue()
    place.world.delete(ACCOUNT)
    place.world.put({**ACCOUNT, "metadata": {**ACCOUNT["metadata"], "uid": "u-new"}})
    assert turned_away(place.authenticator, bearer(token))


@pytest.mark.parametrize(
    "peer",
    [
        PEER | {"subject": ()},
        PEER | {"subject": ((("organizationName", "system:masters"),),)},
        PEER | {"subject": ((("commonName", ""),),)},
        PEER | {"subject": ((("commonName", "jane"),), (("commonName", "admin"),))},
        PEER | {"notAfter": "Feb 28 00:00:00 2026 GMT"},
        {"subject": PEER["subject"]},
    ],
)
def test_a_certificate_without_a_name_or_expired_is_refused(place, peer):
    assert turned_away(place.authenticator, {}, peer)


# --- the file ---


def test_a_token_file_is_read_as_kubernetes_writes_it(tmp_path):
    path = tmp_path / "tokens.csv"
    path.write_text('# people\nabc,jane,u1,"team:a,team:b"\n\ndef, joe, u2\nghi,ann,,ops\n')
    tokens = StaticTokens.from_file(path)
    assert tokens.find("abc") == RequestUser("jane", ("team:a", "team:b"), "u1")
    assert tokens.find("def") == RequestUser("joe", (), "u2")
    assert tokens.find("ghi") == RequestUser("ann", ("ops",), "")
    assert tokens.find("ab") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("good,jane,u1\nhush-hush,joe\n", r"tokens\.csv:2: 2 columns; expected token,user,uid"),
        (",joe,u2\n", r"tokens\.csv:1: the token is empty"),
        ("hush-hush,,u2\n", r"tokens\.csv:1: the user is empty"),
        ("hush-hush,a,1\nhush-hush,b,2\n", r"tokens\.csv:2: the same token as on a line before"),
        ("hush-hush" * 3000 + ",a,1\n", r"tokens\.csv:1: the token is longer than"),
    ],
)
def test_a_bad_line_is_named_and_its_token_is_not(tmp_path, text, words):
    path = tmp_path / "tokens.csv"
    path.write_text(text)
    with pytest.raises(CredentialError, match=words) as error:
        StaticTokens.from_file(path)
    assert "hush" not in str(error.value)


def test_a_missing_or_binary_token_file_is_an_error(tmp_path):
    with pytest.raises(CredentialError, match="there is no token file"):
        StaticTokens.from_file(tmp_path / "none.csv")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(CredentialError, match="is not UTF-8 text"):
        StaticTokens.from_file(tmp_path / "bytes")


# --- keys and secrets ---


def test_the_key_is_stored_so_that_tokens_survive_a_restart(place):
    token = place.issue()
    again = ServiceAccountTokens.open(place.folder, place.world.cache, clock=place.clock)
    assert again.verify(token) is not None
    assert (place.folder / "service-account.key").stat().st_mode & 0o777 == 0o600


def test_others_can_check_our_tokens_with_the_published_key(place):
    token = place.issue()
    key = jwt.PyJWK(place.tokens.build_jwks()["keys"][0])
    said = jwt.decode(token, key, algorithms=["ES256"], options={"verify_exp": False, "verify_aud": False})
    assert said["kubernetes.io"]["serviceaccount"] == {"name": "driver", "uid": "u-account"}
    assert "d" not in place.tokens.build_jwks()["keys"][0]
    assert place.tokens.build_openid_configuration()["issuer"] == said["iss"]


def test_tokens_are_not_printed(place):
    issued = place.tokens.issue(store_object(ACCOUNT), timedelta(hours=1))
    assert issued.token not in repr(issued)
    with pytest.raises(ApiStatusError) as failure:
        place.authenticator.authenticate(bearer("hush-hush"), None)
    assert "hush" not in repr(failure.value) + str(failure.value.to_status())

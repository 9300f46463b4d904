"""Who gets in and how far, over TLS: bad credentials, nodes, drivers, users; and no secret in any record."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import jwt
import pytest
import yaml

from dray.server.auth.authn.certificates import CertificateAuthority
from tests.e2e.server import Running, command, running

TOKEN = "Xq7-not-to-be-found-anywhere"
CLAIM = "/apis/resource.k8s.io/v1/namespaces/team-a/resourceclaims"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
PODS = "/api/v1/namespaces/team-a/pods"


class Answer(NamedTuple):
    code: int
    body: Any


@dataclass
class Place:
    """A server, and clients of all sorts."""

    server: Running
    folder: Path

    def admin(self, method: str, path: str, body: Any = None) -> Answer:
        return self.ask(method, path, body, tls=self.server.context(self.folder))

    def as_(self, user: str, *groups: str) -> Callable[..., Answer]:
        """Somebody with a certificate."""
        options = [option for group in groups for option in ("--group", group)]
        arguments = command("server", "credentials", user, *options, "--data-dir", str(self.folder / "data"))
        written = subprocess.run(arguments, check=True, capture_output=True, timeout=30).stdout
        shown = yaml.safe_load(written)["users"][0]["user"]
        pair = [base64.b64decode(shown[f"client-{part}-data"]) for part in ("certificate", "key")]
        tls = self.showing(b"".join(pair))
        return lambda method, path, body=None: self.ask(method, path, body, tls=tls)

    def showing(self, certificate: bytes = b"") -> ssl.SSLContext:
        """TLS of a client that believes the server and shows a certificate, or none."""
        context = ssl.create_default_context(cafile=str(self.folder / "data" / "keys" / "ca.crt"))
        if certificate:
            (self.folder / "shown.pem").write_bytes(certificate)
            context.load_cert_chain(self.folder / "shown.pem")
        return context

    def ask(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, tls: Any = None
    ) -> Answer:
        url = urlsplit(self.server.url)
        connection = http.client.HTTPSConnection(
            url.hostname or "", url.port, context=tls or self.showing(), timeout=20
        )
        headers = {
            "content-type": "application/merge-patch+json" if method == "PATCH" else "application/json"
        }
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        return Answer(response.status, json.loads(content) if content[:1] == b"{" else content)

    def account_token(self) -> str:
        path = "/api/v1/namespaces/team-a/serviceaccounts/robot/token"
        answer = self.admin("POST", path, {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1"})
        token: str = answer.body["status"]["token"]
        return token


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("access")
    (folder / "tokens.csv").write_text(f'{TOKEN},jane,u1,"team:a"\n')
    with running(folder, "--token-file", str(folder / "tokens.csv"), "--log-level", "debug") as server:
        made = Place(server, folder)
        assert made.admin("POST", "/api/v1/namespaces", thing("Namespace", "team-a")).code == 201
        account = made.admin(
            "POST", "/api/v1/namespaces/team-a/serviceaccounts", thing("ServiceAccount", "robot")
        )
        assert account.code == 201
        yield made


def thing(kind: str, name: str, api_version: str = "v1", **more: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **more}


def slice_of(driver: str, node: str, name: str) -> dict[str, Any]:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": [{"name": "d0"}]}
    return thing("ResourceSlice", name, "resource.k8s.io/v1", spec=spec)


def claim(name: str, **exactly: Any) -> dict[str, Any]:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", **exactly}}
    return thing("ResourceClaim", name, "resource.k8s.io/v1", spec={"devices": {"requests": [request]}})


# --- who gets in ---


def test_good_credentials_get_in(place):
    assert place.ask("GET", "/api", token=TOKEN).code == 200
    assert place.ask("GET", "/api", token=place.account_token()).code == 200
    assert place.as_("jane")("GET", "/api").code == 200


def test_without_credentials_only_public_paths_answer(place):
    assert place.ask("GET", "/healthz").code == 200
    assert place.ask("GET", "/version").code == 200
    for path in ("/api", "/apis", PODS, "/metrics", "/openapi/v2", "/nothing", "/"):
        assert place.ask("GET", path).code == 401


def _unsigned(token: str) -> str:
    head = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').rstrip(b"=").decode()
    return f"{head}.{token.split('.')[1]}."


BAD_TOKENS: dict[str, Callable[[Place], str]] = {
    "empty": lambda place: "",
    "wrong": lambda place: TOKEN[:-1],
    "longer": lambda place: TOKEN + "x",
    "huge": lambda place: "x" * 20_000,
    "no signature": lambda place: _unsigned(place.account_token()),
    "another key": lambda place: jwt.encode(
        jwt.decode(place.account_token(), options={"verify_signature": False}), "k" * 64, algorithm="HS256"
    ),
    "cut": lambda place: place.account_token()[:-3],
}


@pytest.mark.parametrize("what", BAD_TOKENS)
def test_a_bad_token_is_answered_401_whatever_else_is_shown(place, what):
    token = BAD_TOKENS[what](place)
    assert place.ask("GET", "/api", token=token).code in (401, 431)
    admin = place.server.context(place.folder)
    assert place.ask("GET", "/api", token=token, tls=admin).code in (401, 431)


def test_a_token_is_worth_nothing_when_its_account_is_gone(place):
    accounts = "/api/v1/namespaces/team-a/serviceaccounts"
    token = place.account_token()
    assert place.ask("GET", "/api", token=token).code == 200
    assert place.admin("DELETE", f"{accounts}/robot").code == 200
    assert place.ask("GET", "/api", token=token).code == 401
    assert place.admin("POST", accounts, thing("ServiceAccount", "robot")).code == 201
    assert place.ask("GET", "/api", token=token).code == 401


def test_a_certificate_of_another_authority_does_not_get_in(place, tmp_path):
    forged = CertificateAuthority.open(tmp_path / "keys").issue_client_certificate(
        "admin", ["system:masters"]
    )
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
        place.ask("GET", "/api", tls=place.showing(forged.cert_pem + forged.key_pem))


def test_old_tls_is_not_spoken(place):
    old = place.showing()
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        place.ask("GET", "/version", tls=old)


# --- how far ---


def test_a_node_stays_with_its_own(place):
    n1 = place.as_("system:node:n1", "system:nodes")
    assert n1("POST", SLICES, slice_of("d.example.com", "n1", "own")).code == 201
    assert n1("POST", SLICES, slice_of("d.example.com", "n2", "other")).code == 403
    assert place.admin("POST", SLICES, slice_of("d.example.com", "n2", "other")).code == 201
    assert n1("PATCH", f"{SLICES}/other", {"spec": {"nodeName": "n1"}}).code == 403
    assert n1("DELETE", f"{SLICES}/other").code == 403
    assert n1("GET", SLICES).code == 403
    seen = n1("GET", f"{SLICES}?fieldSelector=spec.nodeName%3Dn1")
    assert [one["metadata"]["name"] for one in seen.body["items"]] == ["own"]
    assert n1("POST", CLAIM, claim("c")).code == 403


def test_a_node_cannot_give_a_pod_the_claims_of_another(place):
    n1 = place.as_("system:node:n1", "system:nodes")
    entries = [{"name": "x", "resourceClaimTemplateName": "t"}]
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}], "resourceClaims": entries}
    assert place.admin("POST", PODS, thing("Pod", "p", spec=spec)).code == 201
    stolen = {"resourceClaimStatuses": [{"name": "x", "resourceClaimName": "secret"}]}
    assert n1("PATCH", f"{PODS}/p/status", {"status": {"phase": "Running"}}).code == 200
    assert n1("PATCH", f"{PODS}/p/status", {"status": stolen}).code == 403
    mirror = thing("Pod", "m", spec=spec)
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert n1("POST", PODS, mirror).code == 422  # no mirror pod may have claims, whoever creates it
    assert n1("POST", PODS, {**mirror, "spec": {**spec, "resourceClaims": []}}).code == 201
    assert n1("GET", f"{CLAIM}/secret").code == 403


def test_a_driver_stays_with_its_own(place):
    groups = ("dray:drivers", "dray:driver:a.example.com", "dray:on-node:n1")
    driver = place.as_("driver", *groups)
    assert driver("POST", SLICES, slice_of("a.example.com", "n1", "a-n1")).code == 201
    assert driver("POST", SLICES, slice_of("a.example.com", "n2", "a-n2")).code == 403
    assert driver("POST", SLICES, slice_of("b.example.com", "n1", "b-n1")).code == 403
    assert place.admin("POST", CLAIM, claim("mine")).code == 201
    allocation = {
        "devices": {"results": [{"request": "r", "driver": "a.example.com", "pool": "n1", "device": "d0"}]}
    }
    refused = driver("PATCH", f"{CLAIM}/mine/status", {"status": {"allocation": allocation}})
    assert refused.code == 403
    assert "resourceclaims/binding" in refused.body["message"]


def test_a_user_stays_with_their_own(place):
    place.admin(
        "POST",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/team-a/rolebindings",
        thing(
            "RoleBinding",
            "ed",
            "rbac.authorization.k8s.io/v1",
            roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            subjects=[{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ed"}],
        ),
    )
    ed = place.as_("ed")
    assert ed("POST", CLAIM, claim("eds")).code == 201
    assert ed("PATCH", f"{CLAIM}/eds/status", {"status": {"reservedFor": []}}).code == 403
    assert ed("POST", CLAIM, claim("admin", adminAccess=True)).code == 422
    protected = {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}
    assert ed("PATCH", f"{CLAIM}/eds", protected).code == 403
    assert ed("POST", CLAIM.replace("team-a", "default"), claim("elsewhere")).code == 403
    assert ed("POST", SLICES, slice_of("a.example.com", "n1", "eds")).code == 403
    assert ed("POST", "/apis/resource.k8s.io/v1/deviceclasses", thing("DeviceClass", "x")).code == 403


# --- and what is left behind; the last test, so that there is something to look at ---


def test_no_record_holds_a_token_or_a_key(place):
    token = place.account_token()
    assert place.ask("GET", "/api/v1/pods", token=token).code == 403
    assert place.ask("GET", f"/api?token={TOKEN}", token="wrong-" + TOKEN).code == 401
    key = (place.folder / "data" / "keys" / "ca.key").read_text().splitlines()[1]
    records = [place.server.log.read_text(), (place.folder / "data" / "audit.log").read_text()]
    for record in records:
        for secret in (TOKEN, token, token.split(".")[2], key):
            assert secret not in record
    assert any('"user":"system:serviceaccount:team-a:robot"' in record for record in records)

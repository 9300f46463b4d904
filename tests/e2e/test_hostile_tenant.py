"""A tenant who may create pods and claims in one namespace gets at nothing else, and stands on the record."""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from dray.server.auth.authn.certificates import CertificateAuthority
from tests.e2e.hostile_attempts import (
    DRA,
    INSIDE_A_POD,
    MARK,
    OTHER,
    OVER_THE_API,
    OWN,
    PATCH,
    RBAC,
    Attempt,
    binding,
    claim,
    other,
    own,
    tenant_role,
)
from tests.e2e.patience import until
from tests.e2e.use_case_cluster import upped

SPACING = 0.06
"""Seconds between attempts: the server records at most 20 denials in a second, and counts the others."""
TENANT = "mallory"


@dataclass(frozen=True)
class Answer:
    code: int
    text: str
    audit_id: str

    @property
    def document(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True)
class User:
    """Somebody with a certificate."""

    url: str
    tls: ssl.SSLContext

    def __call__(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        where = urlsplit(self.url)
        connection = http.client.HTTPSConnection(
            where.hostname or "", where.port, context=self.tls, timeout=60
        )
        kind = PATCH if method == "PATCH" else "application/json"
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"content-type": kind, **(headers or {})})
            response = connection.getresponse()
            text = response.read().decode("utf-8", "replace")
            return Answer(response.status, text, response.headers.get("Audit-Id", ""))
        finally:
            connection.close()


@dataclass(frozen=True)
class Place:
    """A cluster with a victim in one namespace and a tenant in another."""

    data: Path
    admin: User
    tenant: User

    def create(self, path: str, body: Any) -> Answer:
        answer = self.admin("POST", path, body)
        assert answer.code == 201, answer
        return answer

    def find_audited(self, audit_id: str) -> list[dict[str, Any]]:
        lines = map(json.loads, (self.data / "audit.log").read_text().splitlines())
        return [line for line in lines if line.get("id") == audit_id and line["event"] == "complete"]

    def get_pod(self, namespace: str, name: str) -> Any:
        return self.admin("GET", f"/api/v1/namespaces/{namespace}/pods/{name}").document


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    # A directory that others may enter, so that it is not the parents' permissions that protect it.
    with tempfile.TemporaryDirectory(prefix="dray-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with upped(folder, "--nodes", "1") as kubeconfig:
            made = _build_place(kubeconfig)
            _prepare(made)
            yield made


def _build_place(kubeconfig: Path) -> Place:
    document = yaml.safe_load(kubeconfig.read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    authority = CertificateAuthority.open_for_clients(kubeconfig.parent / "keys")
    tenant = authority.issue_client_certificate(TENANT, (), days=1)
    pem = b"".join(base64.b64decode(user[f"client-{part}-data"]) for part in ("certificate", "key"))
    ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
    url = cluster["server"]
    return Place(
        kubeconfig.parent,
        User(url, _build_tls(ca, pem)),
        User(url, _build_tls(ca, tenant.cert_pem + tenant.key_pem)),
    )


def _build_tls(ca: str, pem: bytes) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=ca)
    with tempfile.NamedTemporaryFile() as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)
    return context


def _prepare(place: Place) -> None:
    for name in (OWN, OTHER):
        place.create("/api/v1/namespaces", {"metadata": {"name": name}})
    secret = {"metadata": {"name": "key"}, "stringData": {"key": MARK}}
    for namespace in (OWN, OTHER):
        place.create(f"/api/v1/namespaces/{namespace}/secrets", secret)
    place.create(other("serviceaccounts"), {"metadata": {"name": "robot"}})
    place.create(f"{RBAC}/namespaces/{OWN}/roles", tenant_role())
    place.create(f"{RBAC}/namespaces/{OWN}/rolebindings", binding("RoleBinding", "Role/tenant"))
    gpu = place.admin("GET", f"{DRA}/deviceclasses").document["items"][0]["metadata"]["name"]
    taken = claim("taken")
    taken["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = gpu
    place.create(f"{DRA}/namespaces/{OTHER}/resourceclaims", taken)
    script = f"echo {MARK} > $TMPDIR/secret; echo {MARK}; exec sleep 10000"
    victim = _build_pod("victim", script, env={"TOKEN": MARK})
    victim["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "taken"}]
    victim["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    place.create(other("pods"), victim)
    until(lambda: place.get_pod(OTHER, "victim")["status"].get("phase") == "Running")
    for path, body in (
        (own("pods"), _build_pod("own", "exec sleep 10000")),
        (f"{DRA}/namespaces/{OWN}/resourceclaims", claim("own")),
    ):
        answer = place.tenant("POST", path, body)
        assert answer.code == 201, answer


def _build_pod(name: str, script: str, env: Mapping[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    variables = [{"name": key, "value": value} for key, value in (env or {}).items()]
    container = {"name": "c", "image": "none", "command": ["sh", "-c", script], "env": variables}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "containers": [container], **spec},
    }


@pytest.mark.parametrize("attempt", OVER_THE_API, ids=lambda attempt: str(attempt.what))
def test_nothing_succeeds_over_the_api(place: Place, attempt: Attempt) -> None:
    time.sleep(SPACING)
    answer = place.tenant(attempt.method, attempt.path, attempt.body, attempt.headers)
    assert answer.code == attempt.code, answer
    assert MARK not in answer.text
    check_recorded(place, answer)


def check_recorded(place: Place, answer: Answer) -> None:
    """Check that a request of the tenant is in the audit log, once, under the tenant's name."""
    until(lambda: bool(place.find_audited(answer.audit_id)), lambda: answer)
    (line,) = place.find_audited(answer.audit_id)
    assert (line["user"], line["code"]) == (TENANT, answer.code)


def test_the_victim_is_as_it_was(place: Place) -> None:
    assert place.get_pod(OTHER, "victim")["status"]["phase"] == "Running"
    held = place.admin("GET", f"{DRA}/namespaces/{OTHER}/resourceclaims/taken").document["status"]
    assert held["allocation"]["devices"]["results"]
    assert place.admin("GET", "/api/v1/nodes/node-0").code == 200


@pytest.fixture(scope="module")
def found(place: Place) -> dict[str, str]:
    """What the attempts inside a pod found, by their names."""
    server, victim = _find_processes(place)
    script = "\n".join(
        f"echo '== {what}'; ( {attempt} ) 2> /dev/null" for what, attempt in INSIDE_A_POD.items()
    )
    variables = {"DATA": str(place.data), "SERVER": str(server), "VICTIM": str(victim)}
    pod = _build_pod("attack", script + "\necho '== end'", variables, hostPID=True, hostIPC=True)
    uid = place.get_pod(OTHER, "victim")["metadata"]["uid"]
    pod["metadata"]["annotations"] = {"cdi.k8s.io/gpu": f"gpu.example.com/claim={uid}"}
    (container,) = pod["spec"]["containers"]
    container["securityContext"] = {"privileged": True}
    container["volumeMounts"] = [{"name": "host", "mountPath": "/host"}]
    container["terminationMessagePath"] = str(place.data / "keys" / "ca.key")
    pod["spec"]["volumes"] = [{"name": "host", "hostPath": {"path": str(place.data)}}]
    answer = place.tenant("POST", own("pods"), pod)
    assert answer.code == 201, answer
    check_recorded(place, answer)
    until(lambda: _ended(place, "attack"), lambda: place.get_pod(OWN, "attack")["status"])
    assert "PRIVATE KEY" not in json.dumps(place.get_pod(OWN, "attack"))
    said = place.tenant("GET", own("pods/attack/log")).text
    sections = said.split("== ")[1:]
    return {name: text for name, _, text in (section.partition("\n") for section in sections)}


def _ended(place: Place, name: str) -> bool:
    return place.get_pod(OWN, name)["status"].get("phase") in ("Succeeded", "Failed")


def _find_processes(place: Place) -> tuple[int, int]:
    """Find the process of the server, and that of the victim, which has its mark in its variables."""
    server = victim = 0
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            command = Path("/proc", pid, "cmdline").read_text()
            variables = Path("/proc", pid, "environ").read_text()
        except OSError:
            continue
        if f"TOKEN={MARK}" in variables:
            victim = int(pid)
        elif str(place.data) in command.split("\0"):
            server = int(pid)
    assert server
    assert victim
    return server, victim


@pytest.mark.parametrize("attempt", INSIDE_A_POD)
def test_nothing_succeeds_inside_a_pod(found: Mapping[str, str], attempt: str) -> None:
    assert "end" in found, found
    assert found[attempt] == ""


def test_the_attack_found_what_it_looked_for(place: Place, found: Mapping[str, str]) -> None:
    """The same commands succeed for who may: they were not refused because nothing is there."""
    server, victim = _find_processes(place)
    variables = {**os.environ, "DATA": str(place.data), "SERVER": str(server), "VICTIM": str(victim)}
    variables["TMPDIR"] = os.path.join(tempfile.gettempdir(), "own")
    for what in (
        "read the key of the authority",
        "read the store",
        "read the audit log",
        "read the logs of other pods",
        "read the devices of other claims",
        "read the variables of another pod",
        "read the temporary files of another pod",
        "read the credentials of the administrator",
    ):
        done = subprocess.run(
            ["sh", "-c", INSIDE_A_POD[what]], env=variables, capture_output=True, check=False
        )
        assert done.stdout, (what, done.stderr)


@pytest.mark.parametrize("field", ["runAsUser", "runAsGroup"])
def test_a_pod_may_not_choose_its_user(place: Place, field: str) -> None:
    name = field.lower()
    answer = place.tenant("POST", own("pods"), _build_pod(name, "id", securityContext={field: 0}))
    assert answer.code == 201, answer

    def get_waiting() -> dict[str, Any]:
        (status,) = place.get_pod(OWN, name)["status"].get("containerStatuses") or [{}]
        waiting: dict[str, Any] = (status.get("state") or {}).get("waiting") or {}
        return waiting

    until(lambda: get_waiting().get("reason") == "CreateContainerConfigError", get_waiting)
    assert f"securityContext.{field}: Invalid value: `0`" in get_waiting()["message"]


def test_parameters_of_a_claim_bring_no_hooks_and_variables(place: Place) -> None:
    """The driver refuses parameters that would put variables or hooks into a container."""
    parameters = {
        "apiVersion": "gpu.example.com/v1",
        "kind": "GpuConfig",
        "env": {"LD_PRELOAD": "/x"},
        "hooks": [{"hookName": "createRuntime", "path": "/bin/sh"}],
    }
    opaque = {"driver": "gpu.example.com", "parameters": parameters}
    asked = claim("tricks", config=[{"opaque": opaque}])
    gpu = place.admin("GET", f"{DRA}/deviceclasses").document["items"][0]["metadata"]["name"]
    asked["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = gpu
    assert place.tenant("POST", f"{DRA}/namespaces/{OWN}/resourceclaims", asked).code == 201
    pod = _build_pod("tricks", "env", resourceClaims=[{"name": "gpu", "resourceClaimName": "tricks"}])
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    assert place.tenant("POST", own("pods"), pod).code == 201

    def find_refusal() -> bool:
        events = place.admin("GET", own("events")).document["items"]
        about = [event for event in events if event["involvedObject"]["name"] == "tricks"]
        return any("parameters.hooks: unknown field" in event["message"] for event in about)

    until(find_refusal, lambda: place.get_pod(OWN, "tricks")["status"])
    assert not _ended(place, "tricks")

"""What kube-scheduler and kube-controller-manager ask before they begin: everything must be answered."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.contract.shapes import missing
from tests.e2e.server import Running
from tests.e2e.wire import Daemon, daemons
from tests.unit.server.samples import sample

_SCHEDULER = """
/api/v1/namespaces /api/v1/nodes /api/v1/persistentvolumeclaims /api/v1/persistentvolumes /api/v1/pods
/api/v1/replicationcontrollers /api/v1/services /apis/apps/v1/replicasets /apis/apps/v1/statefulsets
/apis/policy/v1/poddisruptionbudgets /apis/resource.k8s.io/v1/deviceclasses
/apis/resource.k8s.io/v1/devicetaintrules /apis/resource.k8s.io/v1/resourceclaims
/apis/resource.k8s.io/v1/resourceslices /apis/storage.k8s.io/v1/csidrivers /apis/storage.k8s.io/v1/csinodes
/apis/storage.k8s.io/v1/csistoragecapacities /apis/storage.k8s.io/v1/storageclasses
/apis/storage.k8s.io/v1/volumeattachments /apis/scheduling.k8s.io/v1beta1/podgroups
"""

_CONTROLLERS = """
/api/v1/configmaps /api/v1/endpoints /api/v1/limitranges /api/v1/podtemplates /api/v1/resourcequotas
/api/v1/secrets /api/v1/serviceaccounts /apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations
/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies
/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings
/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations
/apis/apps/v1/controllerrevisions /apis/apps/v1/daemonsets /apis/apps/v1/deployments
/apis/autoscaling/v2/horizontalpodautoscalers /apis/batch/v1/cronjobs /apis/batch/v1/jobs
/apis/certificates.k8s.io/v1/certificatesigningrequests /apis/certificates.k8s.io/v1/clustertrustbundles
/apis/coordination.k8s.io/v1/leases /apis/coordination.k8s.io/v1beta1/leasecandidates
/apis/discovery.k8s.io/v1/endpointslices /apis/flowcontrol.apiserver.k8s.io/v1/flowschemas
/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations /apis/networking.k8s.io/v1/ingressclasses
/apis/networking.k8s.io/v1/ingresses /apis/networking.k8s.io/v1/ipaddresses
/apis/networking.k8s.io/v1/networkpolicies /apis/networking.k8s.io/v1/servicecidrs
/apis/node.k8s.io/v1/runtimeclasses /apis/rbac.authorization.k8s.io/v1/clusterrolebindings
/apis/rbac.authorization.k8s.io/v1/clusterroles /apis/rbac.authorization.k8s.io/v1/rolebindings
/apis/rbac.authorization.k8s.io/v1/roles /apis/resource.k8s.io/v1/resourceclaimtemplates
/apis/scheduling.k8s.io/v1/priorityclasses /apis/scheduling.k8s.io/v1beta1/workloads
/apis/storage.k8s.io/v1/volumeattributesclasses /apis/apiextensions.k8s.io/v1/customresourcedefinitions
/apis/apiregistration.k8s.io/v1/apiservices /apis/events.k8s.io/v1/events /api/v1/events
"""

SCHEDULER, CONTROLLERS = _SCHEDULER.split(), _CONTROLLERS.split()
ALIVE = "status.phase!=Succeeded,status.phase!=Failed"


@asynccontextmanager
async def _daemons(server: Running, folder: Path) -> AsyncIterator[tuple[Daemon, Daemon]]:
    async with daemons(server.url, server.context(folder)) as both:
        yield both


async def test_every_informer_begins_with_a_watchlist(server: Running, tmp_path: Path) -> None:
    async with _daemons(server, tmp_path) as (scheduler, controllers):

        async def begun(daemon: Daemon, path: str) -> None:
            async with daemon.watch(path) as lines:
                _, revision = await lines.present()
                assert revision.isdigit()

        async with asyncio.TaskGroup() as tasks:
            for path in SCHEDULER:
                tasks.create_task(begun(scheduler, path))
            for path in CONTROLLERS:
                tasks.create_task(begun(controllers, path))


async def test_every_informer_can_list_and_watch_instead(server: Running, tmp_path: Path) -> None:
    async with _daemons(server, tmp_path) as (scheduler, _):

        async def begun(path: str) -> None:
            listed = await scheduler.good("GET", path, limit="500", resourceVersion="0")
            assert listed["kind"].endswith("List")
            query = {
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": listed["metadata"]["resourceVersion"],
                "timeoutSeconds": "1",
            }
            async with scheduler.watch(path, **query):
                pass

        async with asyncio.TaskGroup() as tasks:
            for path in (*SCHEDULER, *CONTROLLERS):
                tasks.create_task(begun(path))


async def test_metadata_is_enough_for_the_collector(server: Running, tmp_path: Path) -> None:
    async with _daemons(server, tmp_path) as (_, controllers):
        for path in ("/api/v1/pods", "/apis/resource.k8s.io/v1/resourceclaims", "/api/v1/namespaces"):
            async with controllers.watch(path, "metadata") as lines:
                found, _ = await lines.present()
                assert all(each["kind"] == "PartialObjectMetadata" for each in found)
            listed = await controllers.good("GET", path, accept="metadata")
            assert listed["kind"] == "PartialObjectMetadataList"
            for item in listed["items"]:
                assert set(item) == {"kind", "apiVersion", "metadata"}


async def test_the_pods_a_scheduler_wants_are_chosen_by_phase(server: Running, tmp_path: Path) -> None:
    async with _daemons(server, tmp_path) as (scheduler, _):
        listed = await scheduler.good("GET", "/api/v1/pods", fieldSelector=ALIVE, limit="500")
        assert listed["kind"] == "PodList"


async def test_how_to_authenticate_is_told(server: Running, tmp_path: Path) -> None:
    name = "extension-apiserver-authentication"
    where = "/api/v1/namespaces/kube-system/configmaps"
    async with _daemons(server, tmp_path) as (scheduler, _):
        found = await scheduler.good("GET", f"{where}/{name}", accept="protobuf first")
        assert "BEGIN CERTIFICATE" in found["data"]["client-ca-file"]
        assert "BEGIN CERTIFICATE" in found["data"]["requestheader-client-ca-file"]
        listed = await scheduler.good("GET", where, fieldSelector=f"metadata.name={name}")
        assert [item["metadata"]["name"] for item in listed["items"]] == [name]


async def test_leaders_are_elected(server: Running, tmp_path: Path) -> None:
    home = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    async with _daemons(server, tmp_path) as (scheduler, _):
        absent = await scheduler.ask("GET", f"{home}/kube-scheduler", timeout="5s")
        assert (absent.code, absent.document["reason"]) == (404, "NotFound")
        times = {"acquireTime": "2026-11-15T20:23:20.123456Z", "renewTime": "2026-11-15T20:23:20.123456Z"}
        lease: dict[str, Any] = {
            "kind": "Lease",
            "apiVersion": "coordination.k8s.io/v1",
            "metadata": {"name": "kube-scheduler", "namespace": "kube-system"},
            "spec": {
                "holderIdentity": "vm_1",
                "leaseDurationSeconds": 15,
                "leaseTransitions": 0,
                **times,
            },
        }
        made = await scheduler.good("POST", home, lease, timeout="5s")
        assert made["spec"] == lease["spec"]
        made["spec"]["renewTime"] = "2026-11-15T20:23:22.123456Z"
        renewed = await scheduler.good("PUT", f"{home}/kube-scheduler", made, timeout="5s")
        assert renewed["spec"]["renewTime"] == made["spec"]["renewTime"]
        late = await scheduler.ask("PUT", f"{home}/kube-scheduler", made)
        assert (late.code, late.document["reason"]) == (409, "Conflict")
        await scheduler.good("POST", "/api/v1/namespaces/kube-system/events", _elected(renewed))


def _elected(lease: dict[str, Any]) -> dict[str, Any]:
    """The event of a new leader, with everything empty that Go clients send empty."""
    metadata = lease["metadata"]
    return {
        "metadata": {
            "name": "kube-scheduler.18e8504c5d07155b",
            "namespace": "kube-system",
            "creationTimestamp": None,
        },
        "involvedObject": {
            "kind": "Lease",
            "namespace": "kube-system",
            "name": "kube-scheduler",
            "uid": metadata["uid"],
            "apiVersion": "coordination.k8s.io/v1",
            "resourceVersion": metadata["resourceVersion"],
        },
        "reason": "LeaderElection",
        "message": "vm_1 became leader",
        "source": {"component": "default-scheduler"},
        "firstTimestamp": "2026-11-15T20:23:20Z",
        "lastTimestamp": "2026-11-15T20:23:20Z",
        "count": 1,
        "type": "Normal",
        "eventTime": None,
        "reportingComponent": "default-scheduler",
        "reportingInstance": "",
    }


@pytest.mark.parametrize(
    ("path", "accept", "recorded"),
    [
        ("/api", "discovery", "aggregated_discovery_api.json"),
        ("/apis", "discovery", "aggregated_discovery_apis.json"),
        ("/api", "typed", "apiversions.json"),
        ("/apis", "typed", "apigrouplist.json"),
        ("/api/v1", "typed", "apiresourcelist_core_v1.json"),
        ("/apis/resource.k8s.io/v1", "typed", "apiresourcelist_resource_v1.json"),
        ("/version", "typed", "version.json"),
    ],
)
async def test_discovery_has_the_recorded_shape(
    server: Running, tmp_path: Path, pytestconfig: pytest.Config, path: str, accept: str, recorded: str
) -> None:
    wanted = sample(pytestconfig, recorded)
    async with _daemons(server, tmp_path) as (_, controllers):
        found = await controllers.good("GET", path, accept=accept)
    if "items" in wanted:  # groups come in an order of their own: compare the devices' one
        wanted, found = (_group(each) for each in (wanted, found))
    assert list(missing(found, wanted)) == []


def _group(listed: dict[str, Any]) -> Any:
    named = {item["metadata"].get("name", ""): item for item in listed["items"]}
    return named.get("resource.k8s.io", named.get(""))


async def test_discovery_is_not_sent_twice(server: Running, tmp_path: Path) -> None:
    async with _daemons(server, tmp_path) as (_, controllers):
        first = await controllers.ask("GET", "/apis", accept="discovery")
        assert first.headers["ETag"]
        async with controllers.session.get(
            f"{server.url}/apis",
            headers={"Accept": "application/json", "If-None-Match": first.headers["ETag"]},
        ) as other:
            assert other.status == 200, "another form of the same is not the same"


async def test_every_group_and_version_lists_its_resources(server: Running, tmp_path: Path) -> None:
    async with _daemons(server, tmp_path) as (_, controllers):
        for group in (await controllers.good("GET", "/apis"))["groups"]:
            for version in group["versions"]:
                found = await controllers.good("GET", f"/apis/{version['groupVersion']}")
                assert found["kind"] == "APIResourceList"
                assert found["groupVersion"] == version["groupVersion"]


async def test_health_is_ok(server: Running, tmp_path: Path) -> None:
    async with _daemons(server, tmp_path) as (_, controllers):
        told = await controllers.ask("GET", "/healthz")
        assert (told.code, told.document) == (200, "ok")


async def test_controllers_get_accounts_and_tokens(server: Running, tmp_path: Path) -> None:
    home = "/api/v1/namespaces/kube-system/serviceaccounts"
    async with _daemons(server, tmp_path) as (_, controllers):
        account = {"metadata": {"name": "resource-claim-controller", "namespace": "kube-system"}}
        assert (await controllers.ask("POST", home, account)).code in (201, 409)
        asked = {"spec": {"expirationSeconds": 3600, "audiences": None}, "status": {}}
        made = await controllers.good("POST", f"{home}/resource-claim-controller/token", asked)
        assert made["kind"] == "TokenRequest"
        bearer = {"Authorization": f"Bearer {made['status']['token']}"}
        trusted = _anonymous(server, tmp_path)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusted)) as session:
            review = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
            where = f"{server.url}/apis/authentication.k8s.io/v1/selfsubjectreviews"
            async with session.post(where, json=review, headers=bearer) as answer:
                who = (await answer.json())["status"]["userInfo"]
            assert who["username"] == "system:serviceaccount:kube-system:resource-claim-controller"
            async with session.get(f"{server.url}/api/v1/pods") as answer:
                assert answer.status == 401
                assert (await answer.json())["reason"] == "Unauthorized"


def _anonymous(server: Running, folder: Path) -> ssl.SSLContext:
    server.context(folder)
    return ssl.create_default_context(cafile=str(folder / "certificate-authority-data"))

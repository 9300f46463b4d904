"""Bodies are decoded as Kubernetes does: wrong types, unknown fields, empty values, warnings, finalizers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dray.api.json_text import write_json
from dray.wire import kubernetes
from dray.wire.kubernetes.decoding import PROTOBUF
from tests.contract.api import APPLY, JSON_PATCH, MERGE, STRATEGIC, Document, path, serving
from tests.contract.documents import claim, config, node, pod

YAML = {"content-type": "application/yaml"}
PASSWORD = "correct-horse-battery"


def deployment(name: str = "d", **spec: Any) -> Document:
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "i"}], **spec}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


DEPLOYMENTS = path("deployments", group="apps")


def with_spec(document: Document, **fields: Any) -> Document:
    return {**document, "spec": {**document.get("spec", {}), **fields}}


WRONG_TYPES: dict[str, tuple[str, Document, str]] = {
    "a text for a number": (path("pods"), with_spec(pod("p"), priority="high"), "spec.priority: expected"),
    "a number beyond 32 bits": (path("pods"), with_spec(pod("p"), priority=2**40), "spec.priority: expected"),
    "a map with a number": (
        path("pods"),
        with_spec(pod("p"), nodeSelector={"a": 1}),
        "spec.nodeSelector[a]: expected a string, got a number",
    ),
    "a text that is no quantity": (
        path("pods"),
        with_spec(pod("p"), overhead={"cpu": "much"}),
        "spec.overhead[cpu]: ",
    ),
    "a time that is none": (
        path("configmaps"),
        config("c", creationTimestamp="yesterday"),
        "metadata.creationTimestamp: expected a time",
    ),
    "a part of a template": (
        DEPLOYMENTS,
        deployment(securityContext="none"),
        "spec.template.spec.securityContext: expected an object, got a string",
    ),
    "a part of a node": (path("nodes"), with_spec(node("n"), taints={}), "spec.taints: expected a list"),
    "a closed kind": (
        path("resourceclaims"),
        claim("c", requests=[{"name": "r", "exactly": {"deviceClassName": "a", "count": "2"}}]),
        "spec.devices.requests[0].exactly.count: expected an integer, got a string",
    ),
    "an amount of a closed kind": (
        path("resourceclaims"),
        claim("c", requests=[{"name": "r", "exactly": {"capacity": {"requests": {"memory": "much"}}}}]),
        "spec.devices.requests[0].exactly.capacity.requests[memory]: ",
    ),
}


@pytest.mark.parametrize(("where", "document", "problem"), WRONG_TYPES.values(), ids=WRONG_TYPES)
async def test_a_wrong_type_is_a_bad_request_that_names_the_field(
    where: str, document: Document, problem: str
) -> None:
    kind = document["kind"]
    async with serving() as api:
        for headers, body in (({}, write_json(document)), (YAML, write_json(document))):
            refused = await api.ask("POST", where, body, headers=headers)
            assert (refused.code, refused.reason) == (400, "BadRequest"), refused.message
            assert refused.message.startswith(
                f'{kind} in version "v1" cannot be handled as a {kind}: {problem}'
            )
            assert "details" not in refused.document


async def test_an_update_and_a_status_are_decoded_alike() -> None:
    async with serving() as api:
        made = await api.create(pod("p"))
        for sub, part in (("", {"spec": 5}), ("status", {"status": {"conditions": [{"type": 5}]}})):
            refused = await api.ask("PUT", path("pods", "p", sub=sub), {**made, **part})
            assert (refused.code, refused.reason) == (400, "BadRequest")
            (name,) = part
            assert f"cannot be handled as a Pod: {name}" in refused.message


PATCHES = {
    MERGE: {"metadata": {"labels": {"a": 5}}},
    STRATEGIC: {"metadata": {"labels": {"a": 5}}},
    JSON_PATCH: [{"op": "add", "path": "/metadata/labels", "value": {"a": 5}}],
}


@pytest.mark.parametrize(("kind", "patch"), PATCHES.items())
async def test_a_patch_with_a_result_of_a_wrong_type_is_invalid(kind: str, patch: Any) -> None:
    async with serving() as api:
        await api.create(pod("p"))
        refused = await api.ask("PATCH", path("pods", "p"), patch, headers={"content-type": kind})
        assert (refused.code, refused.reason) == (422, "Invalid")
        (cause,) = refused.document["details"]["causes"]
        assert (cause["reason"], cause["field"]) == ("FieldValueInvalid", "patch")
        assert "metadata.labels[a]: expected a string, got a number" in refused.message


async def test_an_applied_configuration_must_fit_its_kind() -> None:
    async with serving() as api:
        for part in ({"priority": "high"}, {"nobodyKnows": 1}):
            refused = await api.ask(
                "PATCH",
                path("pods", "p"),
                with_spec(pod("p"), **part),
                headers={"content-type": APPLY},
                fieldManager="m",
                fieldValidation="Ignore",
            )
            assert (refused.code, refused.reason) == (400, "BadRequest")
            assert f"spec.{next(iter(part))}" in refused.message


OTHER_BODIES = {
    "binding": (path("pods", "p", sub="binding"), {"target": {"name": 5}}, "target.name"),
    "eviction": (path("pods", "p", sub="eviction"), {"deleteOptions": []}, "deleteOptions"),
    "review": (
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {"spec": {"resourceAttributes": 5}},
        "spec.resourceAttributes",
    ),
    "token": (
        path("serviceaccounts", "default", sub="token"),
        {"spec": {"expirationSeconds": "x"}},
        "spec.expirationSeconds",
    ),
}


@pytest.mark.parametrize(("where", "body", "field"), OTHER_BODIES.values(), ids=OTHER_BODIES)
async def test_bodies_of_subresources_and_reviews_are_decoded_alike(
    where: str, body: Document, field: str
) -> None:
    async with serving() as api:
        await api.create(pod("p"))
        refused = await api.ask("POST", where, body)
        assert (refused.code, refused.reason) == (400, "BadRequest")
        assert f"{field}: expected" in refused.message
        refused = await api.ask("POST", where, {"nobodyKnows": 1}, fieldValidation="Strict")
        assert (refused.code, 'unknown field "nobodyKnows"' in refused.message) == (400, True)


SECRETS = {
    "a number": {"data": {"password": 17_171_717}},
    "a text": {"data": PASSWORD},
    "bytes": {"data": {"password": PASSWORD}},
    "a list of texts": {"data": {"password": [PASSWORD]}},
    "plain texts": {"stringData": {"password": [PASSWORD]}},
}


@pytest.mark.parametrize("part", SECRETS.values(), ids=SECRETS)
async def test_what_a_refused_secret_holds_is_nowhere(part: Document, tmp_path: Path) -> None:
    audit = tmp_path / "audit.log"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    async with serving(audit=audit) as api:
        await api.create(secret, path("secrets"))
        answers = [
            await api.ask("POST", path("secrets"), secret | part),
            await api.ask("PUT", path("secrets", "s"), secret | part),
            await api.ask("PATCH", path("secrets", "s"), part, headers={"content-type": MERGE}),
        ]
    assert [answer.code for answer in answers] == [400, 400, 422]
    told = " ".join(str(answer.document) for answer in answers) + audit.read_text()
    assert PASSWORD not in told
    assert "17171717" not in told


async def test_an_unknown_field_anywhere_is_reported_refused_or_ignored_and_never_stored() -> None:
    given = deployment(nobodyKnows=1) | {"extra": {}}
    given["spec"]["template"]["spec"]["containers"][0]["imagePullPolice"] = "Never"
    reports = [
        'unknown field \\"spec.template.spec.containers[0].imagePullPolice\\"',
        'unknown field \\"spec.template.spec.nobodyKnows\\"',
        'unknown field \\"extra\\"',
    ]
    async with serving() as api:
        strict = await api.ask("POST", DEPLOYMENTS, given, fieldValidation="Strict")
        assert (strict.code, strict.reason) == (400, "BadRequest")
        assert "strict decoding error: unknown field" in strict.message
        ignored = await api.ask("POST", DEPLOYMENTS, given, fieldValidation="Ignore", dryRun="All")
        assert (ignored.code, ignored.warnings) == (201, "")
        warned = await api.ask("POST", DEPLOYMENTS, given)
        assert warned.code == 201
        assert all(report in warned.warnings for report in reports)
        stored = await api.get(path("deployments", "d", group="apps"))
        assert "nobodyKnows" not in str(stored)
        assert "imagePullPolice'" not in str(stored)
        assert "extra" not in stored


async def test_an_unknown_field_in_a_patch_is_reported_and_in_strict_mode_invalid() -> None:
    where, headers = path("pods", "p"), {"content-type": MERGE}
    async with serving() as api:
        await api.create(pod("p"))
        warned = await api.ask("PATCH", where, {"spec": {"nobodyKnows": 1}}, headers=headers)
        assert (warned.code, 'unknown field \\"spec.nobodyKnows\\"' in warned.warnings) == (200, True)
        strict = await api.ask(
            "PATCH", where, {"spec": {"nobodyKnows": 1}}, headers=headers, fieldValidation="Strict"
        )
        assert (strict.code, strict.document["details"]["causes"][0]["field"]) == (422, "patch")


async def test_protobuf_with_values_of_a_wrong_type_is_refused() -> None:
    headers = {"content-type": PROTOBUF}
    body = kubernetes.encode(config("c"))
    async with serving() as api:
        made = await api.ask("POST", path("configmaps"), body, headers=headers)
        assert made.code == 201
        # The field `data` as a number instead of messages.
        broken = body.replace(b"\x12\x0c\n\x03key", b"\x10\x0c\n\x03key")
        assert broken != body
        refused = await api.ask("POST", path("configmaps"), broken, headers=headers)
        assert (refused.code, refused.reason) == (400, "BadRequest")


async def test_clients_find_the_fields_that_kubernetes_always_shows() -> None:
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "default"},
        "eventTime": "2026-01-31T12:00:00.000000Z",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reportingController": "example.com/c",
        "reportingInstance": "c-0",
        "action": "Test",
        "reason": "Tested",
        "type": "Normal",
    }
    async with serving() as api:
        await api.create(event, path("events", group="events.k8s.io"))
        (listed,) = (await api.get(path("events")))["items"]
        shown: Document = {
            "source": {},
            "firstTimestamp": None,
            "lastTimestamp": None,
            "reportingInstance": "c-0",
        }
        assert {name: listed.get(name, "absent") for name in shown} == shown
        read = await api.get(path("events", "e", group="events.k8s.io"))
        assert read["deprecatedLastTimestamp"] is None
        async with api.watch(DEPLOYMENTS) as watch:
            await api.create(deployment())
            watched = (await watch.event())["object"]
        assert watched["status"] == {}
        assert watched["spec"]["template"]["spec"]["containers"][0]["resources"] == {}
        assert await api.get(path("deployments", "d", group="apps")) == watched


async def test_what_a_client_reads_it_can_write_back_without_a_change() -> None:
    where = path("deployments", "d", group="apps")
    async with serving() as api:
        await api.create(deployment(nodeName=None, tolerations=[]))
        read = await api.get(where)
        assert "tolerations" not in read["spec"]["template"]["spec"]
        assert (await api.put(read, where)) == read
        without = {**read, "status": None}
        assert (await api.put(without, where)) == read


DEPRECATED = {
    path("resourceclaims", version="v1beta1"): (
        "resource.k8s.io/v1beta1 ResourceClaim is deprecated in v1.35+, unavailable in v1.38+"
    ),
    path("deviceclasses", version="v1beta2"): (
        "resource.k8s.io/v1beta2 DeviceClass is deprecated in v1.36+, unavailable in v1.39+"
    ),
    path("endpoints"): "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    path("resourceclaims"): "",
    path("pods"): "",
}


@pytest.mark.parametrize(("where", "text"), DEPRECATED.items())
async def test_every_response_about_a_deprecated_kind_says_so(where: str, text: str) -> None:
    expected = f'299 - "{text}"' if text else ""
    async with serving() as api:
        assert (await api.ask("GET", where)).warnings == expected
        assert (await api.ask("GET", f"{where}/none")).warnings == expected
        refused = await api.ask("POST", where, {"spec": 5, "subsets": 5})
        assert (refused.code, refused.warnings) == (400, expected)
        async with api.watch(where, timeoutSeconds=1) as watch:
            assert watch.headers.get("warning", "") == expected


async def test_templates_are_warned_about_when_they_are_new_or_changed() -> None:
    old_label, where = {"beta.kubernetes.io/arch": "arm64"}, path("deployments", "d", group="apps")
    text = (
        "spec.template.spec.nodeSelector[beta.kubernetes.io/arch]: "
        'deprecated since v1.14; use \\"kubernetes.io/arch\\" instead'
    )
    async with serving() as api:
        created = await api.ask("POST", DEPLOYMENTS, deployment(nodeSelector=old_label))
        assert created.warnings == f'299 - "{text}"'
        same = await api.ask("PUT", where, created.document)
        assert (same.code, same.warnings) == (200, "")
        changed = with_spec(created.document, minReadySeconds=5)
        assert (await api.ask("PUT", where, changed)).warnings == f'299 - "{text}"'


FINALIZERS = {
    "pods": (pod("f"), 422),
    "configmaps": (config("f"), 422),
    "resourceclaims": (claim("f"), 422),
    "leases": ({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "f"}}, 201),
    "events": (
        {"metadata": {"name": "f"}, "involvedObject": {"namespace": "default"}, "kind": "Event"},
        201,
    ),
}


@pytest.mark.parametrize(("plural", "document", "code"), [(k, *v) for k, v in FINALIZERS.items()])
async def test_a_finalizer_needs_a_domain_where_kubernetes_asks_for_one(
    plural: str, document: Document, code: int
) -> None:
    async with serving() as api:
        for finalizers, expected in (
            (["hold"], code),
            (["example.com/hold", "kubernetes", "orphan"], 201),
            (["example.com/not ok"], 422),
        ):
            given = {**document, "metadata": {**document["metadata"], "finalizers": finalizers}}
            answer = await api.ask("POST", path(plural), given, dryRun="All")
            assert answer.code == expected, answer.message
            if answer.code == 422:
                place = "metadata.finalizers" + ("[0]" if finalizers == ["hold"] else "")
                assert answer.document["details"]["causes"][0]["field"] == place


async def test_an_update_names_its_object() -> None:
    async with serving() as api:
        await api.create(config("c"))
        nameless = {**config("c"), "metadata": {"namespace": "default"}}
        refused = await api.ask("PUT", path("configmaps", "c"), nameless)
        assert (refused.code, refused.reason) == (400, "BadRequest")
        assert "the name on the URL (c)" in refused.message

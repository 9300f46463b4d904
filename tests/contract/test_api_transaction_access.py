"""Who may do what in a transaction, and what is on record of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from dray.server.audit import list_log_files, verify_files
from tests.contract.api import path, serving
from tests.contract.documents import claim, config, node, pod, resource_slice
from tests.contract.test_api_audit import let, read_log
from tests.contract.transactions import CLAIMS, CONFIGS, PODS, bind, commit, delete, patch, post, send

NODE_USER = ("system:node:node-a", "system:nodes")
SECRETS = path("secrets")


def rule(group: str, resource: str, *verbs: str) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


async def test_the_right_to_transactions_is_a_right_to_nothing() -> None:
    async with serving() as api:
        refused = await send(api.as_user("dray:scheduler"), post(CONFIGS, config("a")))
        assert (refused.code, refused.reason) == (403, "Forbidden")
        assert 'User "dray:scheduler" cannot create resource "configmaps"' in refused.message
        assert refused.message.startswith("request 1 of 1 (create configmaps default): ")


async def test_every_request_is_authorized_by_itself() -> None:
    async with serving() as api:
        await let(api, "bob", rule("", "configmaps", "create"))
        alone = await send(api.as_user("bob"), post(CONFIGS, config("a")))
        assert alone.code == 403
        assert 'cannot create resource "transactions"' in alone.message
        refused = await send(
            api.as_user("dray:scheduler"), bind("p"), patch(f"{PODS}/p/status", {}), post(SECRETS, {})
        )
        assert refused.code == 403
        assert "request 3 of 3 (create secrets default)" in refused.message


async def test_components_have_the_right_to_transactions() -> None:
    async with serving() as api:
        await api.create(node())
        await api.create(pod("p"))
        scheduler, agent = api.as_user("dray:scheduler"), api.as_user(*NODE_USER)
        await commit(scheduler, patch(f"{PODS}/p/status", {"status": {"phase": "Pending"}}), bind("p"))
        await commit(agent, patch(f"{PODS}/p/status", {"status": {"phase": "Running"}}))
        controller = api.as_user("dray:controller")
        await commit(controller, post(CLAIMS, claim("c")), delete(f"{CLAIMS}/c"))


async def test_a_node_writes_only_what_is_its_own() -> None:
    async with serving() as api:
        await api.create(node())
        for name, place in (("mine", "node-a"), ("theirs", "node-b")):
            await api.create(pod(name))
            await commit(api, bind(name, place))
        agent = api.as_user(*NODE_USER)
        mine = patch(f"{PODS}/mine/status", {"status": {"phase": "Running"}})
        for beyond, why in (
            (patch(f"{PODS}/theirs/status", {"status": {"phase": "Running"}}), "cannot patch"),
            (post(CLAIMS, claim("c")), "cannot create"),
            (post(PODS, pod("other")), "can only create mirror pods"),
        ):
            refused = await send(agent, mine, beyond)
            assert refused.code == 403, refused.document
            assert why in refused.message
        assert [each["status"]["phase"] for each in (await api.get(PODS))["items"]] == ["Pending"] * 2
        assert sorted(await api.names(PODS)) == ["mine", "theirs"]


async def test_admission_restricts_every_request() -> None:
    """The status of a claim needs the right to bind it, which the user does not have."""
    async with serving() as api:
        await api.create(resource_slice("s"))
        await api.create(claim("c", finalizers=["resource.kubernetes.io/delete-protection"]))
        await let(
            api,
            "ann",
            {
                "apiGroups": ["*"],
                "resources": ["transactions", "configmaps", "resourceclaims"],
                "verbs": ["create", "patch", "delete"],
            },
        )
        unprotected = patch(f"{CLAIMS}/c", {"metadata": {"finalizers": None}})
        refused = await send(api.as_user("ann"), post(CONFIGS, config("a")), unprotected)
        assert refused.code == 403
        assert "cannot add or remove the finalizer" in refused.message
        assert await api.names(CONFIGS) == []


async def test_impersonation_holds_for_every_request() -> None:
    async with serving() as api:
        headers = {"impersonate-user": "dray:controller"}
        body = {"spec": {"requests": [post(CLAIMS, claim("c")), post(SECRETS, {})]}}
        refused = await api.ask("POST", "/apis/dray.dev/v1alpha1/transactions", body, headers=headers)
        assert refused.code == 403
        assert 'User "dray:controller" cannot create resource "secrets"' in refused.message


def read_everything(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in list_log_files(log) for line in file.read_bytes().splitlines()]


def test_the_audit_log_has_two_lines_that_name_every_write(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"

    async def main() -> None:
        async with serving(audit=log) as api:
            unnamed = config("") | {"metadata": {"generateName": "g-"}}
            await commit(api, post(CONFIGS, config("a")), delete(f"{CONFIGS}/a"), post(CONFIGS, unnamed))
            await send(api, post(CONFIGS, config("b")), delete(f"{CONFIGS}/none"))
            await send(api.as_user("dray:controller"), post(CLAIMS, claim("c")), delete(f"{SECRETS}/s"))
            await commit(api, post(SECRETS, config("s") | {"kind": "Secret", "data": {}}))

    asyncio.run(main())
    assert verify_files(list_log_files(log)).findings == ()
    received = [line for line in read_log(log, "received") if line.get("requests")]
    complete = [line for line in read_log(log, "complete") if line.get("requests")]
    assert [line["id"] for line in received] == [line["id"] for line in complete]
    create = {"verb": "create", "version": "v1", "resource": "configmaps", "namespace": "default"}
    remove = create | {"verb": "delete"}
    assert received[0]["requests"] == [create, remove | {"name": "a"}, create]
    done, failed, denied, secret = complete
    assert (done["code"], done["resource"], done["path"].rpartition("/")[2]) == (201,) + ("transactions",) * 2
    assert done["requests"][0] == create | {"name": "a", "code": 201}
    assert done["requests"][1] == remove | {"name": "a", "code": 200}
    assert done["requests"][2]["name"].startswith("g-")
    assert (failed["code"], [each.get("code") for each in failed["requests"]]) == (404, [None, 404])
    assert (denied["code"], [each.get("code") for each in denied["requests"]]) == (403, [None, 403])
    assert (denied["reason"], denied["user"]) == ("Forbidden", "dray:controller")
    assert (secret["request"], secret["response"]) == ("withheld", "withheld")
    ids = {line["id"] for line in complete}
    assert sum(line.get("id") in ids for line in read_everything(log)) == 2 * len(ids) == 8


async def test_requests_in_transactions_are_counted() -> None:
    async with serving() as api:
        await commit(api, post(CONFIGS, config("a")), post(CONFIGS, config("b")))
        await send(api, post(CONFIGS, config("c")), post(CONFIGS, config("a")))
        text = (await api.ask("GET", "/metrics")).document
    counted = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith("apiserver_request_total{") and ("configmaps" in line or "transactions" in line)
    }
    assert sorted(counted.values()) == [1, 1, 1, 2]
    parts = [line for line in text.splitlines() if line.startswith("dray_transaction_requests_total{")]
    assert parts == [
        'dray_transaction_requests_total{code="201"} 2.0',
        'dray_transaction_requests_total{code="409"} 1.0',
    ]

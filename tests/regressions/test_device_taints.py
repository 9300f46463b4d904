"""Faults that taints of devices have had elsewhere, by their row in the list of regressions."""

from __future__ import annotations

from typing import Any

from dray.api.core import Pod
from dray.api.meta import Condition
from dray.api.resource import DeviceTaintRule, ResourceSlice
from dray.client.client import Client
from dray.client.errors import NotFoundError, ServerUnreachableError
from dray.client.patches import JsonPatch, MergePatch
from dray.client.rest_client import ClientOptions
from dray.client.transport import TransportRequest
from dray.clock import SystemClock, format_timestamp
from dray.controllers.runner import ControllerOptions
from tests.contract.controlled import CONTROLLER, POD, World, by_name, by_template, claim, pod
from tests.contract.documents import resource_slice
from tests.contract.lagging import Lagging
from tests.contract.scheduled import asks, exactly, impatient, place
from tests.unit.cli.conftest import Typed, desk, typed

__all__ = ["desk", "impatient", "typed"]

WAY = "inside"
SOON = ControllerOptions(rule_status_delay=0.05)
KEY = "example.com/maintenance"
TOLERATION = {"key": KEY, "operator": "Exists", "effect": "NoExecute"}

Document = dict[str, Any]


def rule(name: str = "r", effect: str = "NoExecute", **selector: str) -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name},
        "spec": {"deviceSelector": selector, "taint": {"key": KEY, "effect": effect}},
    }


async def exists(here: World, name: str = "p") -> bool:
    try:
        found = await here.pod(name)
    except NotFoundError:
        return False
    return found.metadata.deletion_timestamp is None


async def evicted(here: World, name: str = "p") -> Pod:
    await here.until(lambda: exists(here, name), lambda there: not there)
    return await here.pod(name)


async def told(here: World, name: str = "r") -> Condition | None:
    status = (await here.client.get(DeviceTaintRule, name)).status
    return next((each for each in status.conditions if each.type == "EvictionInProgress"), None)


async def running(here: World, *, device: str = "gpu-0", **result: Any) -> None:
    """A pod that runs with a device of a slice."""
    await here.make(resource_slice("s", devices=2), claim("c"), pod("p", by_name("c")))
    await here.allocate("c", "p", device=device, **result)
    await here.bind("p", "node-a")
    await here.end("p", "Running")


# --- T01: tolerated, and evicted all the same: the toleration was not taken along into the allocation ---


async def test_t01_a_claim_that_tolerates_noexecute_is_allocated_and_its_pod_stays(tmp_path):
    async with place(WAY, tmp_path) as here, here.controlled(choices=SOON), here.scheduling():
        await here.cluster(nodes=1, devices=1)
        await here.make(rule())
        await here.make(asks(exactly(tolerations=[TOLERATION])), pod("p", by_template()))
        await here.until_bound("p")
        made = await here.claim_of("p")
        assert made.status.allocation is not None
        (result,) = made.status.allocation.devices.results
        assert [(each.key, each.operator, each.effect) for each in result.tolerations] == [
            (KEY, "Exists", "NoExecute")
        ]
        await here.until(lambda: told(here), lambda said: said is not None and "1 in use" in said.message)
        await here.stays(lambda: exists(here))


async def test_t01_a_claim_that_does_not_tolerate_it_waits_and_its_pod_names_the_rule(tmp_path):
    async with place(WAY, tmp_path) as here, here.controlled(choices=SOON), here.scheduling():
        await here.cluster(nodes=1, devices=1)
        await here.make(rule("service-day", "NoSchedule", driver="gpu.example.com"))
        await here.make(asks(exactly()), pod("p", by_template()))
        await here.until_refused("p", "tainted", f"`{KEY}:NoSchedule` by rule `service-day`")
        await here.client.delete(DeviceTaintRule, "service-day")
        await here.until_bound("p")


# --- T02: pods with devices of an extended resource name no claim in their spec, and were overlooked ---


async def extended(here: World) -> None:
    """A pod whose claim is only known from its status and from whom the claim is reserved for."""
    asked = pod("p")
    for amounts in ("requests", "limits"):
        asked["spec"]["containers"][0].setdefault("resources", {})[amounts] = {"example.com/gpu": "1"}
    await here.make(resource_slice("s", devices=1), claim("c"), asked)
    mapping = [{"containerName": "c", "resourceName": "example.com/gpu", "requestName": "gpu"}]
    said = {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": mapping}}
    await here.client.patch(POD, "p", MergePatch({"status": said}), "default", subresource="status")
    await here.allocate("c", "p")


async def test_t02_a_pod_that_has_its_device_through_an_extended_resource_is_evicted_by_a_rule(tmp_path):
    async with place(WAY, tmp_path) as here, here.controlled(choices=SOON):
        await extended(here)
        await here.bind("p", "node-a")
        await here.stays(lambda: exists(here))
        await here.make(rule(device="gpu-0"))
        gone = await evicted(here)
        assert gone.spec.resource_claims == ()


async def test_t02_and_by_a_taint_of_its_driver_also_when_it_is_bound_later(tmp_path):
    async with place(WAY, tmp_path) as here, here.controlled(choices=SOON):
        await extended(here)
        taint = {
            "op": "add",
            "path": "/spec/devices/0/taints",
            "value": [{"key": KEY, "effect": "NoExecute"}],
        }
        await here.client.patch(ResourceSlice, "s", JsonPatch([taint]))
        await here.stays(lambda: exists(here))
        await here.bind("p", "node-a")
        await evicted(here)


# --- T03: a rule with an empty selector ended every pod in the cluster without a word ---


async def test_t03_a_rule_for_every_device_gets_a_warning_with_its_scope(tmp_path):
    async with place(WAY, tmp_path) as here:
        await running(here)
        warned: list[str] = []
        admin = Client(here.reach._transport(""), ClientOptions(on_warning=warned.append))
        await admin.create(rule(driver="gpu.example.com"))
        assert warned == []
        await admin.create(rule("everything"))
        everything = (
            "spec.deviceSelector: the selector is empty: the rule taints every device of every driver"
        )
        assert warned[0].startswith(everything)
        assert "evicted" in warned[0]
        assert warned[1:] == [
            "spec.deviceSelector: devices published now: 2; devices allocated to claims: 1; "
            "pods that may use them: 1"
        ]
        warned.clear()
        label = MergePatch({"metadata": {"labels": {"a": "b"}}})
        await admin.patch(DeviceTaintRule, "everything", label)
        assert [each for each in warned if "published now" in each] == []
        without = rule("nothing")
        del without["spec"]["deviceSelector"]
        warned.clear()
        await admin.create(without)
        assert warned == [
            "spec.deviceSelector: a rule without a selector selects no device; `{}` selects every device"
        ]


def test_t03_lint_warns_of_a_rule_for_every_device(typed: Typed, tmp_path):
    text = """
        apiVersion: resource.k8s.io/v1
        kind: DeviceTaintRule
        metadata: {name: everything}
        spec:
          deviceSelector: {}
          taint: {key: example.com/maintenance, effect: NoExecute}
    """
    (tmp_path / "rule.yaml").write_text(text)
    ended = typed("lint", str(tmp_path / "rule.yaml"))
    assert "the rule taints every device of every driver" in ended.out
    assert "`None`" in ended.out


async def test_t03_the_effect_none_counts_the_pods_a_rule_would_evict_and_evicts_none(tmp_path):
    async with place(WAY, tmp_path) as here, here.controlled(choices=SOON):
        await running(here)
        await here.make(rule(effect="None"))
        said = await here.until(lambda: told(here))
        preview = (
            "2 published devices and 1 in use selected; "
            "1 pod in 1 namespace would be evicted if the effect was NoExecute"
        )
        assert (said.status, said.reason, said.message) == ("False", "NoEffect", preview)
        assert said.observed_generation == 1
        await here.make(resource_slice("more", "node-b", devices=1))
        await here.until(lambda: told(here), lambda said: said.message.startswith("3 published devices"))
        assert await exists(here)
        before = (await here.client.get(DeviceTaintRule, "r")).spec.taint.time_added
        await here.until(lambda: _later_than(before))
        await here.client.patch(
            DeviceTaintRule, "r", MergePatch({"spec": {"taint": {"effect": "NoExecute"}}})
        )
        await evicted(here)
        after = (await here.client.get(DeviceTaintRule, "r")).spec.taint.time_added
        assert after is not None
        assert before is not None
        assert after > before, "who tolerates it for a while does so from when it began to end pods"


async def _later_than(moment: str | None) -> bool:
    """Times have whole seconds."""
    return moment is not None and format_timestamp(SystemClock().now()) > moment


# --- T04: a crash when a slice changed under a rule; a rule that went while nobody looked was ignored ---


async def test_t04_rules_and_slices_change_in_any_order(tmp_path):
    async with place(WAY, tmp_path) as here, here.controlled(choices=SOON), here.scheduling():
        await here.cluster(nodes=1, devices=1)
        await here.make(rule("known", "NoSchedule", device="gpu-0"))
        await here.make(asks(exactly()), pod("p", by_template()))
        await here.until_refused("p", "by rule `known`")
        more = [{"name": "gpu-0"}, {"name": "gpu-1"}]
        name = "node-a-gpu.example.com"
        await here.client.patch(ResourceSlice, name, MergePatch({"spec": {"devices": more}}))
        await here.until_bound("p")
        assert await here.held() == {(await here.claim_of("p")).metadata.name: ["node-a/gpu-1"]}
        await here.make(rule("unknown", device="gpu-7"))
        await here.client.delete(DeviceTaintRule, "unknown")
        await here.client.delete(ResourceSlice, name)
        await here.make(rule("late", pool="node-a"))
        await evicted(here)  # a rule reaches devices in use whose slice is gone


async def test_t04_a_rule_that_went_while_nobody_watched_counts_no_more(tmp_path):
    async with place(WAY, tmp_path) as here:
        client = Lagging(here.reach._transport("dray:scheduler"), "devicetaintrules")
        await here.cluster(nodes=1, devices=1)
        await here.make(rule(effect="NoSchedule"))
        async with here.controlled(choices=SOON), here.scheduling(Client(client)):
            await here.make(asks(exactly()), pod("p", by_template()))
            await here.until_refused("p", "by rule `r`")
            client.hold()
            await here.client.delete(DeviceTaintRule, "r")
            await here.make(rule(effect="NoSchedule", device="gpu-9"))
            client.let()
            await here.until_bound("p")


# --- T05: the status said of one pod that it had gone and that it still had to go ---


async def test_t05_a_pod_is_never_counted_as_evicted_and_as_pending(tmp_path):
    async with place(WAY, tmp_path) as here:
        transport = Lagging(here.reach._transport(CONTROLLER), "pods")
        await running(here)
        async with here.controlled(Client(transport), SOON):
            transport.hold()
            await here.make(rule())
            await evicted(here)
            said = await here.until(
                lambda: told(here), lambda said: said is not None and "evicted since" in said.message
            )
            assert "to be evicted" not in said.message
            assert "1 pod in 1 namespace deleted and not gone yet; 1 pod evicted" in said.message
            assert (said.status, said.reason) == ("True", "PodsPendingEviction")
            transport.let()
            await here.delete("p")
            said = await here.until(lambda: told(here), lambda said: said.status == "False")
            assert said.reason == "Completed"
            assert said.message.endswith("1 pod evicted since the controller began")


async def test_t05_a_pod_says_once_that_it_goes_however_often_its_deletion_is_tried(tmp_path):
    async with place(WAY, tmp_path) as here:
        transport = Lagging(here.reach._transport(CONTROLLER), "pods")
        await running(here)
        refusing = _Refusing(transport, times=3)
        async with here.controlled(Client(refusing), SOON):
            await here.make(rule())
            gone = await evicted(here)
            assert refusing.refused == 3
            assert transport.count("PATCH", "/pods/p/status") == 1
            (condition,) = [each for each in gone.status.conditions if each.type == "DisruptionTarget"]
            assert (condition.status, condition.reason) == ("True", "DeletionByDeviceTaintManager")
            assert "from rule r" in condition.message
            assert gone.status.phase == "Running", "nobody but its node says that it ended"
            assert len(await here.until(lambda: here.told("DeviceTaintManagerEviction"))) == 1


async def test_t05_a_pod_that_may_stay_after_all_is_no_target(tmp_path):
    async with place(WAY, tmp_path) as here:
        await running(here)
        refusing = _Refusing(here.reach._transport(CONTROLLER), times=10**9)
        async with here.controlled(Client(refusing), SOON):
            await here.make(rule())
            await here.until(lambda: _async(refusing.refused))
            await here.client.delete(DeviceTaintRule, "r")

            async def target() -> str:
                found = (await here.pod("p")).status.conditions
                return next(each.status for each in found if each.type == "DisruptionTarget")

            await here.until(target, lambda status: status == "False")
            await here.stays(lambda: exists(here))


async def _async(value: int) -> int:
    return value


class _Refusing:
    """A transport on which deletions of pods fail a few times."""

    def __init__(self, inner: Any, times: int) -> None:
        self._inner, self._times = inner, times
        self.refused = 0
        self.address = inner.address
        self.stream = inner.stream
        self.close = inner.close

    async def request(self, request: TransportRequest, **how: Any) -> Any:
        if request.method == "DELETE" and "/pods/" in request.path and self.refused < self._times:
            self.refused += 1
            raise ServerUnreachableError("not just now")
        return await self._inner.request(request, **how)

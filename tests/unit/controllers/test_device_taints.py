"""Which taint rules evict pods."""

from __future__ import annotations

import pytest

from dray.api.decode_report import UnknownField
from dray.api.kinds import get_kind_by_type
from dray.api.meta import ObjectMeta
from dray.api.resource import DeviceTaint, DeviceTaintRule
from dray.api.resource.taint_rule import DeviceTaintRuleSpec, DeviceTaintSelector
from dray.api.unknown_fields import mark_unknown_fields
from dray.client.client import Client
from dray.client.informers.indexer import IndexedObject
from dray.client.object_refs import ObjectKey
from dray.controllers.device_taints import DeviceTaintIndex
from dray.telemetry.logs import build_silent_logger
from tests.unit.client.fakeapi import FakeApi, client_of

DEVICE = ("gpu.example.com", "pool", "gpu-0")


def build_rule(effect: str, *unknown: str) -> DeviceTaintRule:
    rule = DeviceTaintRule(
        metadata=ObjectMeta(name="r"),
        spec=DeviceTaintRuleSpec(
            device_selector=DeviceTaintSelector(), taint=DeviceTaint(key="k", effect=effect)
        ),
    )
    fields = [UnknownField(path, path.rpartition(".")[2]) for path in unknown]
    return mark_unknown_fields(rule, get_kind_by_type(DeviceTaintRule), fields)


@pytest.mark.parametrize(
    ("rule", "evicts"),
    [
        (build_rule("NoExecute"), True),
        (build_rule("NoSchedule"), False),
        (build_rule("NoExecute", "spec.deviceSelector.tomorrow"), False),
        (build_rule("NoExecute", "status.tomorrow"), True),
    ],
)
def test_a_rule_that_may_select_less_than_we_understand_evicts_nothing(rule, evicts):
    client: Client = client_of(FakeApi())
    index = DeviceTaintIndex(client, build_silent_logger(), rules=True)
    index.listen(lambda _device: None, lambda _rules: None)
    assert index.rules is not None
    index.rules._indexer.put(ObjectKey("", "r"), IndexedObject(rule, 1, "uid"))
    assert bool(list(index.get_taints(DEVICE))) is evicts

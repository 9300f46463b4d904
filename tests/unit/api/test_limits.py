"""Every limit: the largest that is allowed is allowed, and one more is not."""

from __future__ import annotations

import pytest

from dray.api import limits
from dray.api.limits import LIMITS
from dray.api.validation import validate_create, validate_status_update
from tests.unit.api.validation.building import (
    allocation,
    ask,
    choice,
    claim,
    classic_claim,
    consumer,
    device,
    device_class,
    found,
    opaque,
    request,
    result,
    slice_of,
    user,
    with_status,
)

req = pytest.mark.req


def created(obj):
    return found(validate_create(obj))


def status(**fields):
    return found(validate_status_update(with_status(**fields), claim()))


def text(size):
    """A JSON object of so many bytes."""
    return {"x": "y" * (size - len('{"x":""}'))}


def alternatives(count, **fields):
    return choice("gpu", *({"name": f"a{n}", **ask(**fields)} for n in range(count)))


def many(count, **fields):
    return slice_of(*(device(f"d{n}", **fields) for n in range(count)))


def of_device(**fields):
    return created(slice_of(device(**fields)))


def attributes(count):
    return {f"a{n}": {"int": n} for n in range(count)}


def capacities(count):
    return {f"c{n}": {"value": "1"} for n in range(count)}


def counters(count):
    return {f"c{n}": {"value": "1"} for n in range(count)}


def consumptions(count):
    return [{"counterSet": f"s{n}", "counters": counters(1)} for n in range(count)]


def shared_counters(sets, each):
    spec = [{"name": f"s{n}", "counters": counters(each)} for n in range(sets)]
    return created(slice_of(devices=None, sharedCounters=spec))


def selectors(count):
    return [{"cel": {"expression": "true"}}] * count


def conditions(count):
    condition = {"status": "True", "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return [{"type": f"T{n}", **condition} for n in range(count)]


def report(**fields):
    at = {"driver": "gpu.example.com", "pool": "node-a", "device": "gpu-0"}
    return status(allocation=allocation(), devices=[{**at, **fields}])


def network(**fields):
    return report(networkData=fields)


def allocated(results=1, configs=0):
    config = [{"source": "FromClaim", "opaque": opaque()}] * configs
    return status(allocation={"devices": {"results": [result()] * results, "config": config}})


def reserved(count):
    return status(allocation=allocation(), reservedFor=[consumer(f"u{n}") for n in range(count)])


def negotiation(**scheduling):
    got = classic_claim(status={"phase": "Pending", "scheduling": scheduling})
    return found(validate_status_update(got, classic_claim()))


def users(count):
    fields = {"phase": "Allocated", "userLimit": -1, "reservedFor": [user(f"u{n}") for n in range(count)]}
    return found(validate_status_update(classic_claim(status=fields), classic_claim()))


def nodes(count):
    return [f"n{n}" for n in range(count)]


REQUEST = "spec.devices.requests[0]"
DEVICE = "spec.devices[0]"
REPORT = "status.devices[0]"

# what is counted: (the most that is allowed, an answer to a number, the error for one more)
TABLE = {
    "devices": (128, lambda n: created(many(n)), "TooMany spec.devices"),
    "devices with taints": (
        64,
        lambda n: created(many(n, taints=[{"key": "a", "effect": "None"}])),
        "TooMany spec.devices",
    ),
    "devices with counters": (
        64,
        lambda n: created(many(n, consumesCounters=consumptions(1))),
        "TooMany spec.devices",
    ),
    "devices with lists": (
        64,
        lambda n: created(many(n, attributes={"a": {"ints": [1]}})),
        "TooMany spec.devices",
    ),
    "devices with typed lists": (
        64,
        lambda n: created(many(n, attributes={"a": {"list": {"int": [1]}}})),
        "TooMany spec.devices",
    ),
    "attributes": (32, lambda n: of_device(attributes=attributes(n)), f"Invalid {DEVICE}"),
    "capacities": (32, lambda n: of_device(capacity=capacities(n)), f"Invalid {DEVICE}"),
    "attributes and capacities": (
        32,
        lambda n: of_device(attributes=attributes(30), capacity=capacities(n - 30)),
        f"Invalid {DEVICE}",
    ),
    "attribute values": (48, lambda n: of_device(attributes={"a": {"ints": [1] * n}}), f"Invalid {DEVICE}"),
    "bytes of a string": (
        64,
        lambda n: of_device(attributes={"a": {"string": "x" * n}}),
        f"TooLong {DEVICE}.attributes[a].string",
    ),
    "taints": (
        16,
        lambda n: of_device(taints=[{"key": f"k{i}", "effect": "None"} for i in range(n)]),
        f"TooMany {DEVICE}.taints",
    ),
    "counter sets": (8, lambda n: shared_counters(n, 1), "TooMany spec.sharedCounters"),
    "counters": (32, lambda n: shared_counters(1, n), "TooMany spec.sharedCounters[0].counters"),
    "counters of a device": (
        32,
        lambda n: of_device(consumesCounters=[{"counterSet": "s", "counters": counters(n)}]),
        f"TooMany {DEVICE}.consumesCounters[0].counters",
    ),
    "consumptions": (
        2,
        lambda n: of_device(consumesCounters=consumptions(n)),
        f"TooMany {DEVICE}.consumesCounters",
    ),
    "binding conditions": (
        4,
        lambda n: of_device(bindingConditions=[f"C{i}" for i in range(n)], bindingFailureConditions=["F"]),
        f"TooMany {DEVICE}.bindingConditions",
    ),
    "binding failure conditions": (
        4,
        lambda n: of_device(bindingConditions=["C"], bindingFailureConditions=[f"F{i}" for i in range(n)]),
        f"TooMany {DEVICE}.bindingFailureConditions",
    ),
    "pool name": (
        253,
        lambda n: created(
            slice_of(
                pool={"name": f"{'p' * 126}/{'p' * (n - 127)}", "generation": 0, "resourceSliceCount": 1}
            )
        ),
        "TooLong spec.pool.name",
    ),
    "driver name": (63, lambda n: created(slice_of(driver="d" * n)), "TooLong spec.driver"),
    "requests": (
        32,
        lambda n: created(claim(*(request(f"r{i}") for i in range(n)))),
        "TooMany spec.devices.requests",
    ),
    "alternatives": (8, lambda n: created(claim(alternatives(n))), f"TooMany {REQUEST}.firstAvailable"),
    "selectors": (
        32,
        lambda n: created(claim(request(selectors=selectors(n)))),
        f"TooMany {REQUEST}.exactly.selectors",
    ),
    "selectors of an alternative": (
        32,
        lambda n: created(claim(alternatives(1, selectors=selectors(n)))),
        f"TooMany {REQUEST}.firstAvailable[0].selectors",
    ),
    "selectors of a class": (
        32,
        lambda n: created(device_class(selectors=selectors(n))),
        "TooMany spec.selectors",
    ),
    "tolerations": (
        16,
        lambda n: created(claim(request(tolerations=[{"operator": "Exists"}] * n))),
        f"TooMany {REQUEST}.exactly.tolerations",
    ),
    "constraints": (
        32,
        lambda n: created(claim(constraints=[{"matchAttribute": "a.b/c"}] * n)),
        "TooMany spec.devices.constraints",
    ),
    "configuration": (
        32,
        lambda n: created(claim(config=[{"opaque": opaque()}] * n)),
        "TooMany spec.devices.config",
    ),
    "configuration of a class": (
        32,
        lambda n: created(device_class(config=[{"opaque": opaque()}] * n)),
        "TooMany spec.config",
    ),
    "bytes of an expression": (
        10 * 1024,
        lambda n: created(claim(request(selectors=[{"cel": {"expression": "true".ljust(n)}}]))),
        f"TooLong {REQUEST}.exactly.selectors[0].cel.expression",
    ),
    "bytes of parameters": (
        10 * 1024,
        lambda n: created(claim(config=[{"opaque": opaque(parameters=text(n))}])),
        "TooLong spec.devices.config[0].opaque.parameters",
    ),
    "bytes of classic parameters": (
        10 * 1024,
        lambda n: created(classic_claim(parameters=text(n))),
        "TooLong spec.parameters",
    ),
    "count": (2**31 - 1, lambda n: created(claim(request(count=n))), f"Invalid {REQUEST}.exactly.count"),
    "results": (32, lambda n: allocated(results=n), "TooMany status.allocation.devices.results"),
    "configuration of an allocation": (
        64,
        lambda n: allocated(configs=n),
        "TooMany status.allocation.devices.config",
    ),
    "consumers": (256, reserved, "TooMany status.reservedFor"),
    "bytes of data": (10 * 1024, lambda n: report(data=text(n)), f"TooLong {REPORT}.data"),
    "conditions": (8, lambda n: report(conditions=conditions(n)), f"TooMany {REPORT}.conditions"),
    "bytes of a reason": (
        1024,
        lambda n: report(conditions=[{**conditions(1)[0], "reason": "R" * n}]),
        f"TooLong {REPORT}.conditions[0].reason",
    ),
    "bytes of a message": (
        32 * 1024,
        lambda n: report(conditions=[{**conditions(1)[0], "message": "m" * n}]),
        f"TooLong {REPORT}.conditions[0].message",
    ),
    "addresses": (
        16,
        lambda n: network(ips=[f"10.0.0.{i}/24" for i in range(n)]),
        f"TooMany {REPORT}.networkData.ips",
    ),
    "interface name": (
        256,
        lambda n: network(interfaceName="e" * n),
        f"TooLong {REPORT}.networkData.interfaceName",
    ),
    "hardware address": (
        128,
        lambda n: network(hardwareAddress="a" * n),
        f"TooLong {REPORT}.networkData.hardwareAddress",
    ),
    "potential nodes": (
        128,
        lambda n: negotiation(scheduler={"potentialNodes": nodes(n)}),
        "TooMany status.scheduling.scheduler.potentialNodes",
    ),
    "unsuitable nodes": (
        128,
        lambda n: negotiation(driver={"unsuitableNodes": nodes(n)}),
        "TooMany status.scheduling.driver.unsuitableNodes",
    ),
    "users of a classic claim": (256, users, "TooMany status.reservedFor"),
}


PROVES = {
    "selectors": ("K4816-036",),
    "selectors of an alternative": ("K4816-036",),
    "alternatives": ("K4816-037", "K4816-121"),
    "attributes and capacities": ("K5075-169",),
}


@pytest.mark.parametrize(
    ("most", "answer", "error"),
    [
        pytest.param(*row, id=what, marks=req(*PROVES[what]) if what in PROVES else ())
        for what, row in TABLE.items()
    ],
)
def test_the_largest_and_one_more(most, answer, error):
    assert answer(most) == []
    assert answer(most + 1) == [error]


def test_the_table_of_limits_holds_every_constant():
    constants = {value for name, value in vars(limits).items() if name.isupper() and isinstance(value, int)}
    assert constants <= {limit.maximum for limit in LIMITS}


def test_the_table_of_limits_has_distinct_readable_rows():
    assert len({limit.subject for limit in LIMITS}) == len(LIMITS)
    assert all(limit.maximum > 0 and limit.unit for limit in LIMITS)


def test_items_of_an_overlong_list_are_not_checked():
    """Whoever sends a million bad requests gets one error."""
    assert created(claim(*(request("BAD") for _ in range(10_000)))) == ["TooMany spec.devices.requests"]
    assert created(many(10_000, attributes={"!": {}})) == ["TooMany spec.devices"]

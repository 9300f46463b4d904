"""Sound documents of every kind and version, from which the broken ones are made.

Theory of operation: half of them are the hand-written ones below, which pass validation, so that a small
change reaches the rules deep inside. The other half is read off the structs with any fields set, so that
every field is met, also those that somebody adds later.
"""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import msgspec
from msgspec import inspect

from dray.api import codec
from dray.api.json_text import read_json, write_json
from dray.api.kinds import KINDS, Kind
from dray.values.quantity import Quantity

UID = "2b1dd7f7-1f0e-4d3f-8d3f-3c4a1c5ad7a5"
SHARE = "7c1ff0a5-5a1c-4f53-a1f3-0242ac120002"
TIME = "2026-01-31T12:00:00Z"
PARAMETERS = {
    "apiVersion": "gpu.example.com/v1",
    "kind": "GpuConfig",
    "limits": [1, 2.5, None],
    "deep": {"a": {}},
}
CEL = {"cel": {"expression": 'device.driver == "gpu.example.com"'}}
OPAQUE = {"driver": "gpu.example.com", "parameters": PARAMETERS}
NODES = {
    "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]
}
TOLERATIONS = [{"key": "broken", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}]
ASK = {
    "deviceClassName": "gpu",
    "selectors": [CEL],
    "allocationMode": "ExactCount",
    "count": 2,
    "tolerations": TOLERATIONS,
    "capacity": {"requests": {"memory": "1Gi"}},
}
CLAIM_SPEC = {
    "devices": {
        "requests": [
            {"name": "one", "exactly": {**ASK, "adminAccess": True}},
            {
                "name": "some",
                "firstAvailable": [{"name": "big", **ASK}, {"name": "small", "deviceClassName": "gpu"}],
            },
        ],
        "constraints": [
            {"requests": ["one", "some/big"], "matchAttribute": "gpu.example.com/numa"},
            {"distinctAttribute": "gpu.example.com/id"},
        ],
        "config": [{"requests": ["one"], "opaque": OPAQUE}],
    }
}
RESULT = {
    "request": "one",
    "driver": "gpu.example.com",
    "pool": "node-a",
    "device": "gpu-0",
    "shareID": SHARE,
    "consumedCapacity": {"memory": "1Gi"},
    "tolerations": TOLERATIONS,
    "bindingConditions": ["ready"],
    "bindingFailureConditions": ["failed"],
}
CLAIM_STATUS = {
    "allocation": {
        "devices": {
            "results": [RESULT],
            "config": [{"source": "FromClaim", "requests": ["one"], "opaque": OPAQUE}],
        },
        "nodeSelector": NODES,
        "allocationTimestamp": TIME,
    },
    "reservedFor": [{"resource": "pods", "name": "train-0", "uid": UID}],
    "devices": [
        {
            "driver": "gpu.example.com",
            "pool": "node-a",
            "device": "gpu-0",
            "shareID": SHARE,
            "conditions": [
                {"type": "ready", "status": "True", "reason": "Up", "message": "", "lastTransitionTime": TIME}
            ],
            "data": PARAMETERS,
            "networkData": {
                "interfaceName": "eth1",
                "ips": ["10.0.0.1/24"],
                "hardwareAddress": "02:00:00:00:00:01",
            },
        }
    ],
}
POOL = {"name": "node-a", "generation": 3, "resourceSliceCount": 2, "priority": 7}
PLAIN_DEVICES = [
    {
        "name": f"gpu-{i}",
        "attributes": {
            "gpu.example.com/numa": {"int": i},
            "model": {"string": "a100"},
            "driverVersion": {"version": "1.2.3"},
            "ready": {"bool": True},
        },
        "capacity": {"memory": {"value": "40Gi"}},
    }
    for i in range(3)
]
RICH_DEVICE = {
    "name": "nic-0",
    "attributes": {"numa": {"ints": [0, 1]}, "ids": {"list": {"string": ["a", "b"]}}},
    "capacity": {
        "memory": {"value": "40Gi", "requestPolicy": {"default": "1Gi", "validValues": ["1Gi", "2Gi"]}},
        "slots": {
            "value": "10",
            "requestPolicy": {"default": "2", "validRange": {"min": "1", "max": "9", "step": "1"}},
        },
    },
    "consumesCounters": [{"counterSet": "set-0", "counters": {"memory": {"value": "10Gi"}}}],
    "nodeName": "node-a",
    "taints": [{"key": "example.com/broken", "value": "yes", "effect": "NoSchedule", "timeAdded": TIME}],
    "bindsToNode": True,
    "bindingConditions": ["ready"],
    "bindingFailureConditions": ["failed"],
    "allowMultipleAllocations": True,
}
HEAD = {"driver": "gpu.example.com", "pool": POOL}
SLICES = [
    {**HEAD, "nodeName": "node-a", "devices": PLAIN_DEVICES, "priority": -1},
    {**HEAD, "nodeSelector": NODES, "devices": PLAIN_DEVICES},
    {**HEAD, "perDeviceNodeSelection": True, "devices": [RICH_DEVICE]},
    {
        **HEAD,
        "allNodes": True,
        "sharedCounters": [{"name": "set-0", "counters": {"memory": {"value": "40Gi"}}}],
    },
]
CONTAINER = {
    "name": "main",
    "image": "example.com/train",
    "resources": {"limits": {"cpu": "1"}, "claims": [{"name": "gpu", "request": "one"}]},
}
POD_SPEC = {
    "containers": [CONTAINER],
    "initContainers": [{"name": "init", "image": "i", "resources": {"claims": ["inline"]}}],
    "resourceClaims": [
        {"name": "gpu", "resourceClaimTemplateName": "gpu"},
        {
            "name": "inline",
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"resourceClassName": "gpu"}},
        },
    ],
}
CLASSIC_STATUS = {
    "phase": "Pending",
    "driverName": "gpu.example.com",
    "scheduling": {"scheduler": {"selectedNode": "node-a", "potentialNodes": ["node-a"]}, "driver": {}},
    "userLimit": -1,
}


def _of(api_version: str, kind: str, namespace: str = "", **parts: Any) -> dict[str, Any]:
    metadata = {
        "name": "train",
        "labels": {"app": "train"},
        **({"namespace": namespace} if namespace else {}),
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}


V1 = "resource.k8s.io/v1"
BY_HAND: tuple[dict[str, Any], ...] = (
    _of(V1, "DeviceClass", spec={"selectors": [CEL], "config": [{"opaque": OPAQUE}]}),
    _of(V1, "ResourceClaim", "ml", spec=CLAIM_SPEC),
    _of(V1, "ResourceClaim", "ml", spec=CLAIM_SPEC, status=CLAIM_STATUS),
    _of(V1, "ResourceClaimTemplate", "ml", spec={"metadata": {"labels": {"a": "b"}}, "spec": CLAIM_SPEC}),
    *(_of(V1, "ResourceSlice", spec=spec) for spec in SLICES),
    _of("cdi.k8s.io/v1alpha1", "ResourceClass", driverName="gpu.example.com", parameters=PARAMETERS),
    _of(
        "cdi.k8s.io/v1alpha1",
        "ResourceClaim",
        "ml",
        spec={"resourceClassName": "gpu", "allocationMode": "Delayed", "parameters": PARAMETERS},
        status=CLASSIC_STATUS,
    ),
    _of("v1", "Pod", "ml", spec=POD_SPEC, status={"resourceClaimStatuses": [{"name": "gpu"}]}),
    _of(
        "v1", "Node", spec={"podCIDR": "10.0.0.0/24"}, status={"allocatable": {"cpu": "8", "memory": "32Gi"}}
    ),
    _of("v1", "Namespace"),
    _of("v1", "Event", "ml", type="Warning", reason="FailedScheduling", count=3),
    _of("v1", "ResourceQuota", "ml", spec={"hard": {"gpu.deviceclass.resource.k8s.io/devices": "4"}}),
    _of("coordination.k8s.io/v1", "Lease", "ml", spec={"holderIdentity": "a", "renewTime": TIME}),
)


@cache
def in_every_version() -> tuple[dict[str, Any], ...]:
    """The hand-written documents, in each version their kind is served in."""
    found: list[dict[str, Any]] = []
    for document in BY_HAND:
        decoded = codec.decode_document(document)
        if decoded.kind.open:
            found.append(document)
        else:
            found += (codec.to_document(decoded.object, version) for version in decoded.kind.versions)
    return tuple(found)


# --- read off the structs ---

_TEXTS = (
    "a",
    "gpu",
    "gpu-0",
    "",
    "null",
    "é€🚀",
    "gpu.example.com/model",
    "y" * 70,
    TIME,
    UID,
    "1.2.3",
    "In",
    "Equal",
)
_INTEGERS = (0, 1, 2, -1, 32, 33, 2**31, 2**63 - 1, -(2**63))
_QUANTITIES = tuple(Quantity.parse(text) for text in ("0", "1", "500m", "1Gi", "1e3", "-3", "1.5Mi", "8E"))
_OPAQUE: tuple[Any, ...] = ({}, [], "", 0, PARAMETERS, {"big": 10**30})
_RAWS = tuple(msgspec.Raw(write_json(value)) for value in _OPAQUE)


def any_object(random: Random, kind: Kind) -> Any:
    """A struct of a kind with any of its fields set."""
    return _struct(random, kind.type, 0.5)


def _struct(random: Random, cls: type[msgspec.Struct], chance: float) -> Any:
    given = {}
    for name, make in _makers(cls):
        if random.random() < chance:
            given[name] = make(random)
    return cls(**given)


@cache
def _makers(cls: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    itself = ("apiVersion", "kind") if "metadata" in cls.__struct_fields__ else ()
    return tuple((field.name, _maker(field.type)) for field in info.fields if field.encode_name not in itself)


def _maker(kind: inspect.Type) -> Any:
    match kind:
        case inspect.Metadata(type=inner):
            return _maker(inner)
        case inspect.UnionType(types=members):
            return _maker(next(member for member in members if not isinstance(member, inspect.NoneType)))
        case inspect.StructType(cls=cls):
            return lambda random: _struct(random, cls, 0.4)
        case inspect.VarTupleType(item_type=inner):
            make = _maker(inner)
            return lambda random: tuple(make(random) for _ in range(random.randrange(4)))
        case inspect.DictType(value_type=inner):
            make = _maker(inner)
            return lambda random: {random.choice(_TEXTS): make(random) for _ in range(random.randrange(3))}
        case _:
            pool = _pool(kind)
            return lambda random: random.choice(pool)


def _pool(kind: inspect.Type) -> tuple[Any, ...]:
    match kind:
        case inspect.CustomType():
            return _QUANTITIES
        case inspect.RawType():
            return _RAWS
        case inspect.AnyType():
            return (None, 1, "a", [1], {"a": None})
        case inspect.StrType(pattern=pattern):
            return (TIME,) if pattern else _TEXTS
        case inspect.IntType():
            return _INTEGERS
        case inspect.BoolType():
            return (True, False)
        case _:
            raise TypeError(f"no values for {kind}: teach them here")


def sound(random: Random) -> dict[str, Any]:
    """A document that decodes; now and then it also is valid."""
    if random.random() < 0.5:
        return random.choice(in_every_version())
    kind = random.choice(KINDS)
    obj = any_object(random, kind)
    if kind.open:
        return {**read_json(write_json(obj)), "apiVersion": kind.internal_api_version, "kind": kind.name}
    return codec.to_document(obj, random.choice(kind.versions))

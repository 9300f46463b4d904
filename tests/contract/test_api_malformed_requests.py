"""Randomly malformed requests with every verb: each is carried out or refused, none causes a fault."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from tests.contract.api import APPLY, JSON_PATCH, MERGE, STRATEGIC, Api, path, serving
from tests.contract.documents import (
    allocation,
    claim,
    config,
    device_class,
    namespace,
    node,
    old_claim,
    pod,
    resource_slice,
    template,
)

REQUESTS = 400
STRANGE: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    10**30,
    "",
    "é",
    "\x00",
    "a" * 300,
    [],
    {},
    [None],
    [[]],
    [{}],
    {"": ""},
    {"a": None},
    "18446744073709551616",
]
STATUS = {
    "allocation": allocation(),
    "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
    "devices": [{"driver": "gpu.example.com", "pool": "node-a", "device": "gpu-0", "data": {"a": 1}}],
}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def _objects() -> list[tuple[str, dict[str, Any]]]:
    used = pod("p", claim_name="c", labels={"a": "b"})
    used["spec"]["tolerations"] = [{"key": "a", "operator": "Exists"}]
    used["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    published = resource_slice("s", attributes={"a": {"string": "x"}}, capacity={"m": {"value": "1Gi"}})
    return [
        (path("resourceclaims"), claim("c", finalizers=["example.com/x"]) | {"status": STATUS}),
        (path("resourceclaims", version="v1beta1"), old_claim("c")),
        (path("resourceclaimtemplates"), template("t")),
        (path("resourceslices"), published),
        (path("deviceclasses"), device_class()),
        (path("pods"), used),
        (path("nodes"), node("n") | {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
        (path("namespaces"), namespace("x")),
        (path("configmaps"), config("m", ownerReferences=[])),
    ]


def _places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place, *(found for key, below in inside for found in _places(below, (*place, key)))]


class Spoiler:
    """Malforms documents, the same way for the same seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def spoiled(self, document: Any) -> Any:
        made = copy.deepcopy(document)
        for _ in range(self.chance.choice((1, 1, 2, 3))):
            place = self.chance.choice(_places(made)[1:] or [()])
            if not place:
                return made
            holder = made
            for step in place[:-1]:
                holder = holder[step]
            if isinstance(holder, dict) and self.chance.random() < 0.3:
                del holder[place[-1]]
                holder[self.chance.choice(("zzz", "spec", "$patch", "metadata"))] = self._strange()
            else:
                holder[place[-1]] = self._strange()
        return made

    def _strange(self) -> Any:
        return copy.deepcopy(self.chance.choice(STRANGE))

    def request(self) -> tuple[str, str, Any, dict[str, str]]:
        """Method, path, body and headers of one request."""
        home, document = self.chance.choice(_objects())
        one = f"{home}/{document['metadata']['name']}" + self.chance.choice(("", "", "/status"))
        method = self.chance.choice(("POST", "PUT", "PATCH", "PATCH", "DELETE", "GET"))
        if method == "POST":
            return method, home, self.spoiled(document), {}
        if method == "PUT":
            return method, one, self.spoiled(document), {}
        if method == "DELETE":
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": "x"}, "dryRun": ["All"]}
            return method, one, self.spoiled(options), {}
        if method == "GET":
            return method, self.chance.choice((home, one)), None, {"accept": TABLE}
        kind = self.chance.choice((MERGE, STRATEGIC, APPLY, JSON_PATCH))
        patch: Any = self.spoiled(document)
        if kind == JSON_PATCH:
            where = self.chance.choice(("", "/spec", "/metadata/labels/a", "/spec/devices/0", "/nosuch/-"))
            step = {"op": "add", "path": where, "from": "/metadata", "value": self._strange()}
            patch = [step | {"op": self.chance.choice(("add", "remove", "move", "copy", "test"))}]
        return method, one, patch, {"content-type": kind}


async def _begin(api: Api) -> None:
    for home, document in _objects():
        await api.ask("POST", home, document)


@pytest.mark.parametrize("seed", range(3))
async def test_malformed_requests_are_refused_without_a_fault(seed: int) -> None:
    spoiler = Spoiler(seed)
    codes: set[int] = set()
    async with serving() as api:
        await _begin(api)
        for number in range(REQUESTS):
            method, where, body, headers = spoiler.request()
            query = {"fieldManager": "me", "force": "true"} if method == "PATCH" else {}
            response = await api.ask(method, where, body, headers=headers, **query)
            assert response.code < 500, (method, where, body, response.document)
            codes.add(response.code)
            if number % 50 == 49:
                await _begin(api)
        await api.create(config("still-well"))
    assert {200, 400, 404, 422} <= codes, "the spoiling is neither too coarse nor too mild"

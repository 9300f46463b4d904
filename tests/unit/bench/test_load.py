"""The load of the scheduler benchmark on a server that admits objects as kube-apiserver does."""

from __future__ import annotations

import asyncio
import json

import pytest

from bench.scheduler import load
from bench.scheduler.load import Load, PodTimes, Refused
from bench.scheduler.workloads import Workload

NO_ACCOUNT = 'error looking up service account test/default: serviceaccount "default" not found'
TAINT = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class StrictSender:
    """Taints new nodes, and refuses the first pods of each namespace for a reason that the test gives."""

    def __init__(self, message=NO_ACCOUNT, refusals=2):
        self.message, self.refusals = message, refusals
        self.nodes = {}
        self.accepted = []
        self.tried = {}

    async def send(self, method, path, document=b""):
        kind = path.rsplit("/", 1)[-1]
        if kind == "pods?dryRun=All":
            self.tried[path] = self.tried.get(path, 0) + 1
            if self.tried[path] <= self.refusals:
                raise Refused(self.message, 403)
        elif path == "/api/v1/nodes":
            document = {**document, "spec": {"taints": [TAINT]}}
            self.nodes[document["metadata"]["name"]] = document
        elif method == "PUT":
            self.nodes[kind] = document
        self.accepted.append((method, path))
        return json.dumps(document).encode()

    async def for_each(self, items, act):
        for item in items:
            await act(item)

    async def create_all(self, path, documents):
        for document in documents:
            await self.send("POST", path, document)


def prepare(sender):
    asyncio.run(Load(Workload("Some/workload", "steady", None, nodes=3), sender, PodTimes()).prepare())


def test_new_nodes_lose_the_taint_that_admission_gives_them(monkeypatch):
    monkeypatch.setattr(load, "ACCOUNT_STEP", 0.0)
    sender = StrictSender()
    prepare(sender)
    assert {name: node["spec"] for name, node in sender.nodes.items()} == {
        f"scheduler-perf-dra-{number}": {} for number in range(3)
    }


def test_the_load_waits_for_the_service_account_of_both_namespaces(monkeypatch):
    monkeypatch.setattr(load, "ACCOUNT_STEP", 0.0)
    sender = StrictSender()
    prepare(sender)
    assert sender.tried == {f"/api/v1/namespaces/{space}/pods?dryRun=All": 3 for space in ("test", "init")}


def test_another_refusal_of_pods_ends_the_preparation():
    sender = StrictSender("pods are forbidden", refusals=1)
    with pytest.raises(Refused, match="pods are forbidden"):
        prepare(sender)
    assert list(sender.tried.values()) == [1]


def test_the_wait_for_the_service_account_ends(monkeypatch):
    monkeypatch.setattr(load, "LONGEST_ACCOUNT_WAIT", -1.0)
    with pytest.raises(Refused, match="serviceaccount"):
        prepare(StrictSender())

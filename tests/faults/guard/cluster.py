"""A control plane for campaigns: API servers on one etcd, schedulers of two kinds, and balanced guards."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from dray.client.client import Client, DeleteOptions
from dray.client.config.kubeconfig import load_client_config
from dray.client.errors import AlreadyExistsError, NotFoundError
from dray.client.leases import LEASE_KIND
from dray.client.object_refs import get_kind
from dray.client.rest_client import CALL_ERRORS
from dray.client.transports.http import HttpTransport
from tests.contract.etcd_server import free_port
from tests.e2e.use_case_cluster import named, pod
from tests.faults.guard.balancer import Balancer
from tests.faults.guard.claim_history import judge_history
from tests.faults.ledger.checker import Judge
from tests.faults.ledger.contested_devices import DRIVER
from tests.kubernetes.control_plane import ControlPlane, Program
from tests.kubernetes.dray_services import start_dray
from tests.kubernetes.guards import USER, install_guard, start_guard

POD, CLAIM = get_kind("Pod"), get_kind("ResourceClaim.resource.k8s.io")
LEASE = "8"
"""Seconds: the shortest that guards allow."""
PATIENCE = 90.0

T = TypeVar("T")
Document = dict[str, Any]


class CampaignCluster:
    """What campaigns start, kill and ask."""

    def __init__(self, plane: ControlPlane, chance: random.Random) -> None:
        self.plane, self._chance = plane, chance
        self.client = Client(HttpTransport(load_client_config(str(plane.kubeconfig))))
        self.api_servers = [plane.api_server]
        self._ports = [plane.port]
        self.schedulers: list[Program] = []
        self._controllers: list[Program] = []
        self.guards: dict[str, Program] = {}
        self._balancer: Balancer | None = None

    async def close(self) -> None:
        if self._balancer is not None:
            await self._balancer.stop()
        await self.client.close()

    # --- programs ---

    async def add_api_server(self) -> None:
        """Another kube-apiserver on the same etcd."""
        port, first = free_port(), self.plane.api_server
        flags = [flag for flag in first.arguments[1:] if not flag.startswith("--secure-port=")]
        number = len(self.api_servers)
        added = self.plane.add(
            "kube-apiserver", *flags, f"--secure-port={port}", name=f"kube-apiserver-{number}"
        )
        self.api_servers.append(added)
        self._ports.append(port)
        client = Client(HttpTransport(load_client_config(str(self._choose_server(self.plane.kubeconfig, 1)))))
        await self.persist(lambda: client.get_json("/version"))
        await client.close()

    def _choose_server(self, kubeconfig: Path, number: int) -> Path:
        """The kubeconfig for one of the API servers, in turn."""
        port = self._ports[number % len(self._ports)]
        file = kubeconfig.with_name(f"{port}-{kubeconfig.name}")
        file.write_text(kubeconfig.read_text().replace(f":{self.plane.port}", f":{port}"))
        return file

    def start_schedulers(self, kube: int, dray: int) -> None:
        """kube-schedulers that all take the same pods, and dray's with a name of their own; none elects."""
        for number in range(kube):
            kubeconfig = self._choose_server(self.plane.write_kubeconfig("system:kube-scheduler"), number)
            self.schedulers.append(
                self.plane.start_scheduler(f"--kubeconfig={kubeconfig}", name=f"kube-scheduler-{number}")
            )
        for number in range(dray):
            kubeconfig = self._choose_server(self.plane.kubeconfig, number + 1)
            flags = ("--scheduler-name", f"dray-{number}", "--kubeconfig", str(kubeconfig))
            self.schedulers.append(
                start_dray(self.plane, "scheduler", *flags, name=f"dray-scheduler-{number}")
            )

    def start_claim_controller(self) -> None:
        """kube-controller-manager with the controller that deallocates claims of deleted pods."""
        flags = ("--controllers=resourceclaim-controller", "--leader-elect=false")
        self._controllers.append(self.plane.start_controllers(*flags))

    async def start_guards(self, count: int) -> None:
        """Guards, and the webhook that sends every allocation to one of them."""
        port, ports = free_port(), [free_port() for _ in range(count)]
        install_guard(self.plane, port)
        self._balancer = Balancer(ports, self._chance)
        await self._balancer.start(port)
        for number, own in enumerate(ports):
            name = f"guard-{number}"
            kubeconfig = self._choose_server(self.plane.write_kubeconfig(USER), number)
            flags = ("--lease-duration", LEASE, "--kubeconfig", str(kubeconfig))
            self.guards[name] = start_guard(self.plane, own, name, *flags)
        await self._wait_for_guard()

    async def _wait_for_guard(self) -> None:
        await wait_until(
            lambda: any("this guard decides now" in guard.log.read_text() for guard in self.guards.values()),
            lambda: "\n".join(guard.read_log_end() for guard in self.guards.values()),
        )

    async def supervise(self) -> None:
        """Start again what ended by itself, as a kubelet would: no API server answered when it started."""
        while True:
            for program in (*self.schedulers, *self._controllers, *self.guards.values(), *self.api_servers):
                if program.has_ended:
                    program.start()
            await asyncio.sleep(1)

    async def find_leading_guard(self) -> str:
        """The name of the guard that leads; one of them when the lease tells nothing."""
        with suppress(*CALL_ERRORS, TimeoutError):
            async with asyncio.timeout(2):
                lease = await self.client.get(LEASE_KIND, "dray-guard", "kube-system")
                name = str(lease["spec"].get("holderIdentity") or "").partition("@")[0]
                if name in self.guards:
                    return name
        return next(iter(self.guards))

    # --- objects ---

    def furnish(self, slices: Iterable[Document]) -> None:
        """Create nodes, device classes by sort, and slices whose devices say which sort they are."""
        for number in range(2):
            self.plane.create_node(f"n{number}")
        documents = []
        for sort in ("dedicated", "shared", "partition"):
            expression = f'device.attributes["{DRIVER}"].sort == "{sort}"'
            selectors = [{"cel": {"expression": expression}}]
            documents.append(
                {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "DeviceClass",
                    "metadata": {"name": sort},
                    "spec": {"selectors": selectors},
                }
            )
        for published in slices:
            for device in published["spec"].get("devices", ()):
                device["attributes"] = {"sort": {"string": device["name"].partition("-")[0]}}
            documents.append(published)
        self.plane.build_kubectl()("create", "-f", "-", given=documents)

    async def create_pod(self, claim: Document, scheduler: str) -> None:
        """Create a claim and a pod of the same name that uses it."""
        name = claim["metadata"]["name"]
        document = pod(name, named(name), schedulerName=scheduler)
        document["metadata"]["namespace"] = "default"
        for each in (claim, document):
            with suppress(AlreadyExistsError):
                await self.persist(lambda each=each: self.client.create(each))  # type: ignore[misc]

    async def delete_pod(self, name: str) -> None:
        """Delete a pod at once, and its claim."""
        with suppress(NotFoundError):
            options = DeleteOptions(grace_seconds=0)
            await self.persist(lambda: self.client.delete(POD, name, "default", options))
        with suppress(NotFoundError):
            await self.persist(lambda: self.client.delete(CLAIM, name, "default"))

    async def persist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call until the API server answers."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return await call()
            except (AlreadyExistsError, NotFoundError):
                raise
            except CALL_ERRORS:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(0.2)

    async def judge(self) -> Judge:
        return await judge_history(self.plane.etcd_endpoint)

    def count_denials(self) -> int:
        """How many writes API servers refused because a guard denied them."""
        lines = (line for server in self.api_servers for line in server.log.read_text().splitlines())
        return sum('rejected by webhook "guard.dray.dev"' in line and '"Conflict"' in line for line in lines)


async def wait_until(
    is_so: Callable[[], bool], tell: Callable[[], object], seconds: float = PATIENCE
) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, tell()
        await asyncio.sleep(0.1)


async def kill_and_restart(program: Program, pause: float) -> None:
    """Kill a program, and start it again after a while."""
    await asyncio.to_thread(program.kill)
    await asyncio.sleep(pause)
    program.start()


async def freeze(program: Program, seconds: float) -> None:
    """Stop a program in the middle of whatever it does, and let it continue."""
    program.send(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    program.send(signal.SIGCONT)

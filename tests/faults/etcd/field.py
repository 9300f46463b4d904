"""Three etcd members behind proxies, with all faults that can be injected."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from dray.store import Store
from dray.store.errors import StoreError
from tests.contract.etcd_server import NO_ETCD, Cluster, Member, binary
from tests.faults.etcd.network import Network

SIZE = 3
DISK = "300m"
"""The disk of the member that will find it full: two logs of 64 MiB, laid out in advance, and some space."""
READY = 40.0


class NoEtcd(Exception):  # noqa: N818 - what is the case
    """There is no etcd to test with."""


class Field:
    """Three members and the lines between them."""

    def __init__(self, cluster: Cluster, network: Network) -> None:
        self.cluster = cluster
        self.network = network
        self.small_disk: Member | None = None
        """The member whose disk can be filled; None where this process may not mount one."""

    @property
    def members(self) -> list[Member]:
        return self.cluster.members

    async def store(self, first: int = 0, patience: float = 5.0, prefix: bytes = b"/r16/") -> Store:
        """A store that asks member `first` first."""
        from dray.store.etcd.store import EtcdStore

        endpoints = self.cluster.endpoints[first:] + self.cluster.endpoints[:first]
        return await EtcdStore.open(endpoints, prefix=prefix, timeout=patience)

    async def leader(self) -> Member:
        """The member that leads; waits until there is one."""
        async with asyncio.timeout(READY):
            while True:
                for member in self.members:
                    status = await _status(member)
                    if status is not None and status.leader == status.header.member_id:
                        return member
                await asyncio.sleep(0.05)

    async def followers(self) -> list[Member]:
        leader = await self.leader()
        return [member for member in self.members if member is not leader]

    async def all_there(self) -> None:
        """Wait until every member answers and knows a leader."""
        async with asyncio.timeout(READY):
            for member in self.members:
                while True:
                    status = await _status(member)
                    if status is not None and status.leader:
                        self.network.names[f"{status.header.member_id:x}"] = member.name
                        break
                    await asyncio.sleep(0.05)


async def _status(member: Member) -> Any:
    from dray.store.etcd.client import EtcdClient
    from dray.store.etcd.messages import CLASSES

    line = EtcdClient((member.client,), None, 0.5)
    try:
        return await line.call_idempotent("Status", CLASSES["StatusRequest"]())
    except StoreError:
        return None
    finally:
        await line.close()


@contextlib.asynccontextmanager
async def three_members(folder: Path, *, disk: bool = False) -> AsyncIterator[Field]:
    """Three durable members; with `disk`, the first one has a small disk of its own, if that is possible."""
    folder.mkdir(parents=True, exist_ok=True)
    program = binary(folder)
    if program is None:
        raise NoEtcd(NO_ETCD)
    members = [Member(f"m{number}", folder, program, durable=True) for number in range(SIZE)]
    mounted = disk and _mount(members[0].folder)
    network = Network()
    for member in members:
        await network.add_proxy(member)
    cluster = Cluster(members)
    field = Field(cluster, network)
    field.small_disk = members[0] if mounted else None
    try:
        await field.all_there()
        yield field
    finally:
        cluster.stop()
        await network.close()
        if mounted:
            subprocess.run(["umount", str(members[0].folder)], check=False)


def _mount(folder: Path) -> bool:
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False

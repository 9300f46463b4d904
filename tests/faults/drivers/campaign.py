"""Claim after claim is prepared and given back by a driver that is killed on the way.

After every death the driver is started again and the agent does what agents do: it asks again. Then there
must be one CDI file for the claim and no other, the devices must be set up for it, and a repeated call must
give the same reply; after the claim was given back, nothing may be left. Some claims stay prepared over the
deaths of others, so that a driver that comes back has something to find.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio

from dray.api.resource import ResourceClaim
from dray.client.client import Client
from dray.client.config.kubeconfig import load_client_config
from dray.client.object_refs import get_kind
from dray.client.patches import MergePatch
from dray.client.transports.http import HttpTransport
from dray.driver.preparing.prepared_claims import FAIL_POINTS
from dray.driver.service.grpc_servers import build_socket_paths
from dray.wire.grpc_services import DRA_V1, GrpcStub
from dray.wire.unix_sockets import open_channel
from tests.contract.documents import allocation, claim, consumer, device_class, node, pod
from tests.faults.drivers.victim import IN_PREPARE, IN_UNPREPARE, NAME, NODE
from tests.faults.ledger.campaign import hosted

EVERYWHERE = (*FAIL_POINTS, IN_PREPARE, IN_UNPREPARE)
ANY_TIME = "at any time"
LONGEST = 60.0
CALL = 20.0

CLAIM = get_kind("ResourceClaim.resource.k8s.io")
DEVICES = ("gpu-0", "gpu-1")
STAYING = ("gpu-2", "gpu-3")


@dataclass
class Tally:
    """What a run came to."""

    deaths: Counter[str] = field(default_factory=Counter)
    claims: int = 0
    wrong: list[str] = field(default_factory=list)

    def sound(self) -> bool:
        return not self.wrong

    def __str__(self) -> str:
        places = "".join(f"\n  {count:4} {place}" for place, count in sorted(self.deaths.items()))
        return (
            f"killed {self.deaths.total()} times in {len(self.deaths)} places while {self.claims} claims "
            f"were prepared and given back; wrong: {len(self.wrong)}{places}"
            + "".join(f"\n  WRONG {each}" for each in self.wrong[:10])
        )


class Process:
    """The driver's process, and the line to it."""

    def __init__(self, root: Path, kubeconfig: str) -> None:
        self._root, self._kubeconfig = root, kubeconfig
        self._process: asyncio.subprocess.Process | None = None
        self._sockets = build_socket_paths(NAME, root / "p", root / "r")

    async def start(self) -> None:
        """Start it; its socket answers when this returns."""
        with (self._root / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.faults.drivers.victim",
                str(self._root),
                self._kubeconfig,
                stderr=log,
            )
        async with asyncio.timeout(LONGEST):
            while True:
                with suppress(grpc.aio.AioRpcError):
                    await self._call("NodePrepareResources", {})
                    return
                assert self._process.returncode is None, (self._root / "log").read_text()[-2000:]
                await asyncio.sleep(0.05)

    async def prepare(self, claims: Mapping[str, str]) -> Mapping[str, Any]:
        """The reply for claims given as uid and name; `AioRpcError` when nobody answers."""
        return dict((await self._call("NodePrepareResources", claims)).claims)

    async def unprepare(self, claims: Mapping[str, str]) -> Mapping[str, Any]:
        return dict((await self._call("NodeUnprepareResources", claims)).claims)

    async def _call(self, method: str, claims: Mapping[str, str]) -> Any:
        shape = DRA_V1.get_message_class("Claim")
        wanted = [shape(namespace="default", name=name, uid=uid) for uid, name in claims.items()]
        async with open_channel(self._sockets.endpoint) as line:
            request = DRA_V1.methods[method].request(claims=wanted)
            return await GrpcStub(line, DRA_V1).call(method, request, timeout=CALL)

    def kill(self) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)

    async def died(self) -> int:
        """Wait until it is gone; how it ended."""
        assert self._process is not None
        async with asyncio.timeout(LONGEST):
            return await self._process.wait()


class Campaign:
    """Death after death."""

    def __init__(self, root: Path, seed: int) -> None:
        self._root = root
        self._chance = random.Random(seed)
        self._numbers = itertools.count(1)
        self._last: dict[tuple[str, ...], str] = {}
        """The last claim that had these devices."""
        self.tally = Tally()

    async def run(self, places: Sequence[str]) -> Tally:
        """One death at each of these places."""
        async with hosted(self._root / "server") as kubeconfig:
            client = Client(HttpTransport(load_client_config(kubeconfig)))
            self._client, self._process = client, Process(self._root, kubeconfig)
            try:
                for document in (node(NODE), device_class()):
                    await client.create(document)
                await self._process.start()
                staying = await self._claim(STAYING)
                reply = await self._process.prepare(staying)
                for place in places:
                    await self._one(place)
                    self._judge(await self._process.prepare(staying) == reply, "another reply", place)
                await self._process.unprepare(staying)
                self._judge(self._left() == ((), {}), f"left at the end: {self._left()}", "")
            finally:
                self._process.kill()
                await self._process.died()
                await client.close()
        return self.tally

    async def _one(self, place: str) -> None:
        """A claim is prepared and given back, and on the way the driver dies."""
        claims = await self._claim(DEVICES)
        others = self._left()
        self.tally.claims += 1
        dies_giving = place.startswith("unprepare") or (place == ANY_TIME and self._chance.random() < 0.5)
        if dies_giving:
            await self._process.prepare(claims)
        await self._fatal("unprepare" if dies_giving else "prepare", claims, place)
        if not dies_giving or self._chance.random() < 0.3:
            await self._prepared_again(claims, place, late=dies_giving)
        answers = await self._process.unprepare(claims)
        self._judge(all(not each.error for each in answers.values()), f"not given back: {answers}", place)
        self._judge(self._left() == others, f"left after it was given back: {self._left()}", place)
        answers = await self._process.unprepare(claims)
        self._judge(all(not each.error for each in answers.values()), "not given back twice", place)

    async def _fatal(self, what: str, claims: Mapping[str, str], place: str) -> None:
        file = self._root / "fatal"
        if place == ANY_TIME:
            asyncio.get_running_loop().call_later(self._chance.uniform(0, 0.05), self._process.kill)
        else:
            file.write_text(place)
        with suppress(grpc.aio.AioRpcError):
            await getattr(self._process, what)(claims)
        code = await self._process.died()
        self._judge(code == -signal.SIGKILL, f"ended with {code}", place)
        self.tally.deaths[place] += 1
        file.unlink(missing_ok=True)
        await self._process.start()

    async def _prepared_again(self, claims: Mapping[str, str], place: str, *, late: bool) -> None:
        before = self._left()
        (uid,) = claims
        first, second = [(await self._process.prepare(claims))[uid] for _ in range(2)]
        if late and first.error:
            # It had been given back before the death, or is now: then it must stay gone.
            self._judge("too late" in first.error, first.error, place)
            return
        self._judge(first == second and not first.error, f"{first} and then {second}", place)
        files, hardware = self._left()
        mine = [each for each in files if uid in each]
        self._judge(len(mine) == 1, f"CDI files {mine}", place)
        content = json.loads((self._root / "cdi" / mine[0]).read_text()) if mine else {"devices": []}
        names = {f"{NAME}/claim={each['name']}" for each in content["devices"]}
        told = {name for each in first.devices for name in each.cdi_device_ids}
        self._judge(names == told, f"the reply names {told}, the file {names}", place)
        self._judge(
            all(hardware.get(name) == uid for name in DEVICES), f"set up: {hardware}, before {before}", place
        )

    def _left(self) -> tuple[tuple[str, ...], dict[str, str]]:
        """The CDI files there are, and which devices are set up for whom."""
        folder = self._root / "cdi"
        files = tuple(sorted(each.name for each in folder.iterdir())) if folder.is_dir() else ()
        return files, {each.name: each.read_text() for each in (self._root / "hardware").iterdir()}

    def _judge(self, is_so: bool, otherwise: str, place: str) -> None:
        if not is_so:
            self.tally.wrong.append(f"{place}: {otherwise}")

    async def _claim(self, devices: tuple[str, ...]) -> Mapping[str, str]:
        """A claim that has these devices; the one before it is gone, whoever held it."""
        name = f"c{next(self._numbers)}"
        if old := self._last.pop(devices, ""):
            await self._remove(old)
        made: ResourceClaim = await self._client.create(claim(name))
        user = await self._client.create(pod(f"pod-{name}"))
        got = allocation()
        got["devices"]["results"] = [
            {"request": "gpu", "driver": NAME, "pool": NODE, "device": each} for each in devices
        ]
        status = {"status": {"allocation": got, "reservedFor": [consumer(user)]}}
        await self._client.patch(CLAIM, name, MergePatch(status), "default", subresource="status")
        self._last[devices] = name
        return {made.metadata.uid: name}

    async def _remove(self, name: str) -> None:
        for gone in ({"reservedFor": None}, {"allocation": None}):
            change = MergePatch({"status": gone})
            await self._client.patch(CLAIM, name, change, "default", subresource="status")
        await self._client.delete(CLAIM, name, "default")

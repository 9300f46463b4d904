"""The fault campaign of drivers: claims are prepared and unprepared by a driver that is killed in between.

After every kill the campaign starts the driver again and repeats the call, as agents do. Then there must be
one CDI file for the claim and no other, the devices must be set up for it, and a repeated call must give the
same reply; after the claim was unprepared, nothing may be left. Some claims stay prepared while the driver is
killed, so that the restarted driver has records to recover.
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
    """The result of a run."""

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
    """The driver's process, and the calls to it."""

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
        """Prepare claims given as uid and name; raises `AioRpcError` when the driver does not answer."""
        return dict((await self._call("NodePrepareResources", claims)).claims)

    async def unprepare(self, claims: Mapping[str, str]) -> Mapping[str, Any]:
        return dict((await self._call("NodeUnprepareResources", claims)).claims)

    async def _call(self, method: str, claims: Mapping[str, str]) -> Any:
        claim_message = DRA_V1.get_message_class("Claim")
        messages = [claim_message(namespace="default", name=name, uid=uid) for uid, name in claims.items()]
        async with open_channel(self._sockets.endpoint) as channel:
            request = DRA_V1.methods[method].request(claims=messages)
            return await GrpcStub(channel, DRA_V1).call(method, request, timeout=CALL)

    def kill(self) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        """Wait until the process has ended, and return its exit code."""
        assert self._process is not None
        async with asyncio.timeout(LONGEST):
            return await self._process.wait()


class Campaign:
    """Kills the driver again and again, and checks the state after each restart."""

    def __init__(self, root: Path, seed: int) -> None:
        self._root = root
        self._random = random.Random(seed)
        self._sequence = itertools.count(1)
        self._last: dict[tuple[str, ...], str] = {}
        """The last claim that had these devices."""
        self.tally = Tally()

    async def run(self, places: Sequence[str]) -> Tally:
        """Kill the driver once at each of these points."""
        async with hosted(self._root / "server") as kubeconfig:
            client = Client(HttpTransport(load_client_config(kubeconfig)))
            self._client, self._process = client, Process(self._root, kubeconfig)
            try:
                for document in (node(NODE), device_class()):
                    await client.create(document)
                await self._process.start()
                staying = await self._create_claim(STAYING)
                reply = await self._process.prepare(staying)
                for place in places:
                    await self._kill_once(place)
                    self._check(await self._process.prepare(staying) == reply, "another reply", place)
                await self._process.unprepare(staying)
                self._check(self._list_remains() == ((), {}), f"left at the end: {self._list_remains()}", "")
            finally:
                self._process.kill()
                await self._process.wait()
                await client.close()
        return self.tally

    async def _kill_once(self, place: str) -> None:
        """Prepare and unprepare a claim, and kill the driver in between."""
        claims = await self._create_claim(DEVICES)
        others = self._list_remains()
        self.tally.claims += 1
        dies_in_unprepare = place.startswith("unprepare") or (
            place == ANY_TIME and self._random.random() < 0.5
        )
        if dies_in_unprepare:
            await self._process.prepare(claims)
        await self._call_and_die("unprepare" if dies_in_unprepare else "prepare", claims, place)
        if not dies_in_unprepare or self._random.random() < 0.3:
            await self._check_prepared_again(claims, place, late=dies_in_unprepare)
        answers = await self._process.unprepare(claims)
        self._check(all(not each.error for each in answers.values()), f"not given back: {answers}", place)
        self._check(
            self._list_remains() == others, f"left after it was given back: {self._list_remains()}", place
        )
        answers = await self._process.unprepare(claims)
        self._check(all(not each.error for each in answers.values()), "not given back twice", place)

    async def _call_and_die(self, what: str, claims: Mapping[str, str], place: str) -> None:
        file = self._root / "fatal"
        if place == ANY_TIME:
            asyncio.get_running_loop().call_later(self._random.uniform(0, 0.05), self._process.kill)
        else:
            file.write_text(place)
        with suppress(grpc.aio.AioRpcError):
            await getattr(self._process, what)(claims)
        code = await self._process.wait()
        self._check(code == -signal.SIGKILL, f"ended with {code}", place)
        self.tally.deaths[place] += 1
        file.unlink(missing_ok=True)
        await self._process.start()

    async def _check_prepared_again(self, claims: Mapping[str, str], place: str, *, late: bool) -> None:
        before = self._list_remains()
        (uid,) = claims
        first, second = [(await self._process.prepare(claims))[uid] for _ in range(2)]
        if late and first.error:
            # It was unprepared before the kill, or is now: then it must stay so.
            self._check("too late" in first.error, first.error, place)
            return
        self._check(first == second and not first.error, f"{first} and then {second}", place)
        files, hardware = self._list_remains()
        own = [each for each in files if uid in each]
        self._check(len(own) == 1, f"CDI files {own}", place)
        content = json.loads((self._root / "cdi" / own[0]).read_text()) if own else {"devices": []}
        described = {f"{NAME}/claim={each['name']}" for each in content["devices"]}
        reported = {name for each in first.devices for name in each.cdi_device_ids}
        self._check(described == reported, f"the reply names {reported}, the file {described}", place)
        self._check(
            all(hardware.get(name) == uid for name in DEVICES), f"set up: {hardware}, before {before}", place
        )

    def _list_remains(self) -> tuple[tuple[str, ...], dict[str, str]]:
        """Return the CDI files, and the claims that devices are set up for."""
        folder = self._root / "cdi"
        files = tuple(sorted(each.name for each in folder.iterdir())) if folder.is_dir() else ()
        return files, {each.name: each.read_text() for each in (self._root / "hardware").iterdir()}

    def _check(self, is_so: bool, otherwise: str, place: str) -> None:
        if not is_so:
            self.tally.wrong.append(f"{place}: {otherwise}")

    async def _create_claim(self, devices: tuple[str, ...]) -> Mapping[str, str]:
        """Create a claim with these devices, and delete the one that had them before."""
        name = f"c{next(self._sequence)}"
        if old := self._last.pop(devices, ""):
            await self._delete_claim(old)
        created: ResourceClaim = await self._client.create(claim(name))
        user = await self._client.create(pod(f"pod-{name}"))
        got = allocation()
        got["devices"]["results"] = [
            {"request": "gpu", "driver": NAME, "pool": NODE, "device": each} for each in devices
        ]
        status = {"status": {"allocation": got, "reservedFor": [consumer(user)]}}
        await self._client.patch(CLAIM, name, MergePatch(status), "default", subresource="status")
        self._last[devices] = name
        return {created.metadata.uid: name}

    async def _delete_claim(self, name: str) -> None:
        for gone in ({"reservedFor": None}, {"allocation": None}):
            change = MergePatch({"status": gone})
            await self._client.patch(CLAIM, name, change, "default", subresource="status")
        await self._client.delete(CLAIM, name, "default")

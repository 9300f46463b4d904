"""S-06: many clients at once against one limit; nobody gets beyond it, and what is used is always right.

Every round has a namespace and a quota of its own. The clients create claims of all shapes that count: exact
requests, `All`, alternatives, admin access, claims stamped from a template; and some delete again. When
everybody is done, what is there is counted by hand.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.ledger.api import Api
from tests.faults.ledger.campaign import hosted

CLIENTS = 32
COUNT = "count/resourceclaims.resource.k8s.io"
DEVICES = "gpu.deviceclass.resource.k8s.io/devices"
GROUP = "/apis/resource.k8s.io/v1/namespaces"


@dataclass
class Tally:
    """What the rounds came to."""

    rounds: int = 0
    asked: int = 0
    made: int = 0
    refused: int = 0
    beyond: int = 0
    wrong: int = 0
    strange: int = 0
    seconds: float = 0.0

    def sound(self) -> bool:
        return not self.beyond and not self.wrong and not self.strange and self.made > 0 and self.refused > 0

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds x {CLIENTS} clients in {self.seconds:.1f} s: {self.asked:,} asked, "
            f"{self.made:,} made, {self.refused:,} refused; overshoot {self.beyond}, "
            f"wrong usage {self.wrong}, strange answers {self.strange}"
        )


def shapes() -> list[tuple[int, dict[str, Any]]]:
    """Requests, each with how many devices of class `gpu` it counts at worst."""

    def asked(device_class: str, count: int, **more: Any) -> dict[str, Any]:
        return {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count} | more

    everything = {"deviceClassName": "gpu", "allocationMode": "All"}
    return [
        (1, {"name": "r", "exactly": asked("gpu", 1)}),
        (3, {"name": "r", "exactly": asked("gpu", 3)}),
        (2, {"name": "r", "exactly": asked("gpu", 2, adminAccess=True)}),
        (32, {"name": "r", "exactly": everything}),
        (
            4,
            {
                "name": "r",
                "firstAvailable": [
                    {"name": "a"} | asked("gpu", 4),
                    {"name": "b"} | asked("other", 9),
                    {"name": "c"} | asked("gpu", 2),
                ],
            },
        ),
    ]


async def campaign(directory: Path, rounds: int, seed: int) -> Tally:
    """All rounds on one server."""
    tally, rng, begun = Tally(), random.Random(seed), time.monotonic()
    async with hosted(directory / "server") as kubeconfig:
        api = Api(kubeconfig)
        try:
            for number in range(rounds):
                await _round(api, f"round-{number}", rng, tally)
        finally:
            await api.close()
    tally.seconds = time.monotonic() - begun
    return tally


async def _round(api: Api, namespace: str, rng: random.Random, tally: Tally) -> None:
    labels = {"resource.kubernetes.io/admin-access": "true"}
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
    hard = {COUNT: str(rng.randrange(2, 24)), DEVICES: str(rng.randrange(4, 80))}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": namespace},
        "spec": {"hard": hard},
    }
    assert (await api.send("POST", "/api/v1/namespaces", home))[0] == 201
    limited = api.send("POST", f"/api/v1/namespaces/{namespace}/resourcequotas", quota)
    early = rng.random() < 0.2
    if not early:
        code, answer = await limited
        assert code == 201, answer
    work = [_client(api, namespace, i, random.Random(rng.random()), tally) for i in range(CLIENTS)]
    if early:  # the quota comes while claims do: what was there before it may be beyond it
        work.insert(CLIENTS // 2, limited)  # type: ignore[arg-type]
    await asyncio.gather(*work)
    tally.rounds += 1
    await _count(api, namespace, hard, tally, late=early)


async def _client(api: Api, namespace: str, number: int, rng: random.Random, tally: Tally) -> None:
    _, request = rng.choice(shapes())
    document = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": f"c{number}", "namespace": namespace},
        "spec": {"devices": {"requests": [request]}},
    }
    path = f"{GROUP}/{namespace}/resourceclaims"
    code, answer = await api.send("POST", path, document)
    tally.asked += 1
    if code == 403 and "exceeded quota: q" in answer["message"]:
        tally.refused += 1
    elif code == 201:
        tally.made += 1
        if rng.random() < 0.2:
            code, _ = await api.send("DELETE", f"{path}/c{number}")
            tally.strange += code != 200
    else:
        tally.strange += 1


async def _count(api: Api, namespace: str, hard: dict[str, str], tally: Tally, *, late: bool) -> None:
    claims = await api.everything(f"{GROUP}/{namespace}/resourceclaims")
    devices = sum(_worst(claim["spec"]["devices"]["requests"][0]) for claim in claims)
    if not late:
        tally.beyond += len(claims) > int(hard[COUNT]) or devices > int(hard[DEVICES])
    for _ in range(100):
        _, quota = await api.send("GET", f"/api/v1/namespaces/{namespace}/resourcequotas/q")
        used = (quota.get("status") or {}).get("used")
        if used == {COUNT: str(len(claims)), DEVICES: str(devices)}:
            return
        await asyncio.sleep(0.01)  # a quota without usage is counted in the background
    tally.wrong += 1


def _worst(request: dict[str, Any]) -> int:
    """Devices of class `gpu` that a request may get at worst, by hand."""
    asked = [request["exactly"]] if "exactly" in request else request["firstAvailable"]
    numbers = [
        32 if each["allocationMode"] == "All" else each["count"]
        for each in asked
        if each["deviceClassName"] == "gpu"
    ]
    return max(numbers, default=0)

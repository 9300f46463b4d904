"""A kit driver publishes to kube-apiserver, which has no priorities of slices (KEP-5773)."""

from __future__ import annotations

import asyncio

from dray.client.connect import connect
from dray.clock import SystemClock
from dray.driver import Pool, Slice, device
from dray.driver.publishing.publisher import Publisher, PublisherOptions
from dray.telemetry.logs import StructuredLogger
from tests.e2e.kubectl import Kubectl
from tests.kubernetes.control_plane import ControlPlane


def test_a_driver_with_priorities_publishes_without_them_and_logs_that_once(
    plane: ControlPlane, kubectl: Kubectl
) -> None:
    plane.create_node("node-a")
    lines: list[bytes] = []

    def append_line(line: bytes) -> bool:
        lines.append(line)
        return True

    async def publish_twice() -> int:
        options = PublisherOptions(log=StructuredLogger(append_line, SystemClock()))
        late, early = Slice([device("late")], priority=-1), Slice([device("early")], priority=1)
        async with connect(str(plane.kubeconfig)) as client:
            publisher = Publisher(client, "gpu.example.com", "node-a", options)
            await publisher.publish([Pool("node-a", [late, early], priority=3)])
            return (await publisher.publish([Pool("node-a", [late, early], priority=3)])).writes

    assert asyncio.run(publish_twice()) == 0
    slices = sorted(kubectl.get("resourceslices")["items"], key=lambda each: str(each["metadata"]["name"]))
    assert [each["name"] for one in slices for each in one["spec"]["devices"]] == ["early", "late"]
    assert all("priority" not in one["spec"] | one["spec"]["pool"] for one in slices)
    assert len([line for line in lines if b"KEP-5773" in line]) == 1

"""A driver of the kit beside a server in this process, with directories of its own; it can be restarted."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from dray.client.client import Client
from dray.driver import Driver
from dray.driver.service.driver_service import DriverService, DriverServiceOptions

NODE = "node-0"
SOON = 30.0


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder with a short path, as sockets need one."""
    made = Path(tempfile.mkdtemp(prefix="dray-"))
    try:
        yield made
    finally:
        shutil.rmtree(made)


class Kitted:
    """A driver that runs in this process."""

    def __init__(self, make: Callable[[], Driver], client: Client, folder: Path, node: str = NODE) -> None:
        self._make = make
        self._client = client
        self.cdi = folder / "cdi"
        self.registry = folder / "registry"
        self._choices = DriverServiceOptions(
            node, folder / "plugins", self.registry, self.cdi, max_wait_seconds=1.0
        )
        self._task: asyncio.Task[None] | None = None

    @property
    def socket(self) -> Path:
        """Where it registers."""
        (found,) = (each for each in self.registry.iterdir() if each.is_socket())
        return found

    async def start(self) -> None:
        kit = DriverService(self._make(), self._client, self._choices)
        self._task = asyncio.create_task(kit.run())
        ready = asyncio.create_task(kit.ready.wait())
        await asyncio.wait((self._task, ready), timeout=SOON, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            self._task.result()
        assert ready.done(), "the driver did not become ready"

    async def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    async def restart(self) -> None:
        await self.stop()
        await self.start()


@asynccontextmanager
async def kitted(make: Callable[[], Driver], client: Client, folder: Path) -> AsyncIterator[Kitted]:
    """A driver while the block lasts."""
    await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    driver = Kitted(make, client, folder)
    await driver.start()
    try:
        yield driver
    finally:
        await driver.stop()

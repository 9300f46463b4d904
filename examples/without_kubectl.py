"""What the demo asks of kubectl, for machines without: `apply -f FOLDER` and `get resourceclaims -A`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from dray.api.resource import ResourceClaim
from dray.cli.tables import table
from dray.client.changes import Apply
from dray.client.client import Client
from dray.client.connect import connected
from dray.client.places import key_of, kind_of_object
from dray.manifests import Source, read


async def apply(client: Client, folder: str) -> None:
    """Write every object of a folder of manifests to the server, in order."""
    for path in sorted(Path(folder).glob("*.yaml")):
        for document in read(Source.decode(str(path), path.read_bytes())):
            kind, key = kind_of_object(document.value), key_of(document.value)
            await client.patch(kind, key.name, Apply(document.value, "demo"), key.namespace)
            print(f"{kind.name.lower()}/{key.name} applied")


async def claims(client: Client) -> None:
    """A table of all claims and their devices."""
    rows = []
    for claim in (await client.list(ResourceClaim)).items:
        allocation = claim.status.allocation
        results = allocation.devices.results if allocation is not None else ()
        devices = ", ".join(f"{each.driver}/{each.pool}/{each.device}" for each in results)
        state = "allocated" if allocation is not None else "pending"
        rows.append((claim.metadata.namespace, claim.metadata.name, state, devices or "-"))
    for line in table(("namespace", "name", "state", "devices"), rows):
        print(line)


async def main(arguments: list[str]) -> None:
    """Do what was asked."""
    async with connected() as client:
        if arguments[:2] == ["apply", "-f"]:
            await apply(client, arguments[2])
        else:
            await claims(client)


asyncio.run(main(sys.argv[1:]))

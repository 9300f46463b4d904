"""What the demo asks of kubectl, for machines without: `apply -f FOLDER` and `logs POD -n NAMESPACE`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from dray.client.client import Client
from dray.client.config.kubeconfig import find_access
from dray.client.object_refs import key_of, kind_of_object
from dray.client.patches import Apply
from dray.client.rest_client import Caller, Habits
from dray.client.transport import Request
from dray.client.transports.http import Http
from dray.manifests import Source, read


async def apply(client: Client, folder: str) -> None:
    """Write every object of a folder of manifests to the server, in order."""
    for path in sorted(Path(folder).glob("*.yaml")):
        for document in read(Source.decode(str(path), path.read_bytes())):
            kind, key = kind_of_object(document.value), key_of(document.value)
            await client.patch(kind, key.name, Apply(document.value, "demo"), key.namespace)
            print(f"{kind.name.lower()}/{key.name} applied")


async def logs(caller: Caller, pod: str, namespace: str) -> None:
    """What the container of a pod has said."""
    reply = await caller.call(Request("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}/log"))
    print(reply.body.decode(), end="")


async def main(arguments: list[str]) -> None:
    """Do what was asked."""
    transport = Http(find_access("", ""))
    try:
        if arguments[0] == "apply":
            await apply(Client(transport), arguments[2])
        else:
            await logs(Caller(transport, Habits()), arguments[1], arguments[3])
    finally:
        await transport.close()


asyncio.run(main(sys.argv[1:]))

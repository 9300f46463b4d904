"""The kubectl commands of the demo, for machines without kubectl: `apply -f DIR`, `logs POD -n NAMESPACE`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from dray.client.client import Client
from dray.client.config.kubeconfig import load_client_config
from dray.client.object_refs import get_key, get_object_kind
from dray.client.patches import ApplyPatch
from dray.client.rest_client import ClientOptions, RestClient
from dray.client.transport import TransportRequest
from dray.client.transports.http import HttpTransport
from dray.manifests import ManifestSource, read_documents


async def apply(client: Client, directory: str) -> None:
    """Apply every manifest of a directory, in order."""
    for path in sorted(Path(directory).glob("*.yaml")):
        for document in read_documents(ManifestSource.decode(str(path), path.read_bytes())):
            kind, key = get_object_kind(document.value), get_key(document.value)
            await client.patch(kind, key.name, ApplyPatch(document.value, "demo"), key.namespace)
            print(f"{kind.name.lower()}/{key.name} applied")


async def logs(rest_client: RestClient, pod: str, namespace: str) -> None:
    """Print the log of a pod."""
    reply = await rest_client.call(TransportRequest("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}/log"))
    print(reply.body.decode(), end="")


async def main(arguments: list[str]) -> None:
    """Run one of the two commands."""
    transport = HttpTransport(load_client_config("", ""))
    try:
        if arguments[0] == "apply":
            await apply(Client(transport), arguments[2])
        else:
            await logs(RestClient(transport, ClientOptions()), arguments[1], arguments[3])
    finally:
        await transport.close()


asyncio.run(main(sys.argv[1:]))

"""The users of agents and drivers: lines of a token file for the server, and clients that present them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from bench.scheduler.objects import DRIVER, node_name
from dray.client.client import Client
from dray.client.config.client_config import ClientConfig, ClientCredential, StaticCredentialProvider
from dray.client.transports.http import HttpTransport


@dataclass(frozen=True, slots=True)
class NodeTokens:
    """The tokens of a node: of its agent and of its driver."""

    node: str
    agent: str
    driver: str

    def format_lines(self) -> tuple[str, str]:
        """Format the lines of a token file."""
        groups = f"dray:drivers,dray:driver:{DRIVER},dray:on-node:{self.node}"
        return (
            f'{self.agent},system:node:{self.node},{self.node},"system:nodes"',
            f'{self.driver},{DRIVER}:{self.node},{self.node}-driver,"{groups}"',
        )


def create_token_file(file: Path, nodes: int) -> list[NodeTokens]:
    """Create a token file with the users of so many nodes."""
    tokens = [
        NodeTokens(node_name(number), secrets.token_hex(16), secrets.token_hex(16)) for number in range(nodes)
    ]
    lines = [line for each in tokens for line in each.format_lines()]
    file.touch(mode=0o600)
    file.write_text("\n".join(lines) + "\n", "ascii")
    return tokens


def build_client(config: ClientConfig, token: str) -> Client:
    """Build a client with connections of its own."""
    provider = StaticCredentialProvider(ClientCredential(token))
    return Client(HttpTransport(replace(config, credential_provider=provider)))

"""Connections of commands to a server: the options they share, and a client for the run of a command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from dray.client.client import Client
    from dray.client.rest_client import RestClient

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServerTarget:
    """The server given on the command line."""

    kubeconfig: str
    context: str

    @property
    def is_explicit(self) -> bool:
        """Whether it was given, rather than taken from the environment."""
        return bool(self.kubeconfig or self.context)


def server_options(command: F) -> F:
    """Add `--kubeconfig` and `--context`."""
    for option in (
        click.option("--context", default="", metavar="NAME", help="The context of the kubeconfig to use."),
        click.option(
            "--kubeconfig",
            default="",
            metavar="FILE",
            help="The kubeconfig of the server.  [default: $KUBECONFIG or ~/.kube/config]",
        ),
    ):
        command = option(command)
    return command


@asynccontextmanager
async def connect_to_server(kubeconfig: str, context: str) -> AsyncIterator[tuple[Client, RestClient]]:
    """Yield a client of the server, and its REST client for paths that are no resources.

    An error about a server that does not respond, or refuses the credentials, names the file that configures
    it.
    """
    from dray.client.client import Client
    from dray.client.config.kubeconfig import load_client_config
    from dray.client.errors import ServerUnreachableError, UnauthorizedError
    from dray.client.rest_client import ClientOptions, RestClient
    from dray.client.transports.http import HttpTransport
    from dray.errors import InputError

    config = load_client_config(kubeconfig, context)
    transport = HttpTransport(config)
    options = ClientOptions()
    client = Client(transport, options)
    try:
        yield client, RestClient(transport, options)
    except ServerUnreachableError as unreachable:
        raise InputError(f"{unreachable} (`{config.source}` names this server)") from None
    except UnauthorizedError:
        credential = await config.credential_provider.get_credential()
        raise InputError(
            f"{config.server} does not accept the credentials in `{config.source}`"
            + _describe_expiry(credential.certificate)
        ) from None
    finally:
        await client.close()


def _describe_expiry(certificate: bytes) -> str:
    """Describe when a client certificate expired; empty when it did not."""
    from datetime import UTC, datetime

    from cryptography import x509

    if not certificate:
        return ""
    try:
        end = x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    except ValueError:
        return ""
    return f": its client certificate expired at {end:%Y-%m-%d %H:%M} UTC" if end < datetime.now(UTC) else ""


def run_to_completion(work: Awaitable[T]) -> T:
    """Run an awaitable to its end."""

    async def await_work() -> T:
        return await work

    return asyncio.run(await_work())

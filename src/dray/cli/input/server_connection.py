"""How commands reach a server: the options they share, and one connection for as long as a command runs."""

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
    """Which server is meant."""

    kubeconfig: str
    context: str

    @property
    def is_explicit(self) -> bool:
        """Whether somebody chose it, rather than leave it to the surroundings."""
        return bool(self.kubeconfig or self.context)


def server_options(command: F) -> F:
    """`--kubeconfig` and `--context`."""
    for option in (
        click.option("--context", default="", metavar="NAME", help="The context of the kubeconfig to use."),
        click.option(
            "--kubeconfig",
            default="",
            metavar="FILE",
            help="How to reach the server; otherwise $KUBECONFIG or the usual file.",
        ),
    ):
        command = option(command)
    return command


@asynccontextmanager
async def connect_to_server(kubeconfig: str, context: str) -> AsyncIterator[tuple[Client, RestClient]]:
    """A client of the server, and its caller for paths that are no resources.

    A server that does not answer, or does not know us, is told with the file that names it.
    """
    from dray.client.client import Client
    from dray.client.config.kubeconfig import load_client_config
    from dray.client.errors import ServerUnreachableError, UnauthorizedError
    from dray.client.rest_client import ClientOptions, RestClient
    from dray.client.transports.http import HttpTransport
    from dray.errors import InputError

    access = load_client_config(kubeconfig, context)
    transport = HttpTransport(access)
    habits = ClientOptions()
    client = Client(transport, habits)
    try:
        yield client, RestClient(transport, habits)
    except ServerUnreachableError as silent:
        raise InputError(f"{silent} (`{access.source}` names this server)") from None
    except UnauthorizedError:
        raise InputError(f"{access.server} does not accept the credentials in `{access.source}`") from None
    finally:
        await client.close()


def run_to_completion(work: Awaitable[T]) -> T:
    """Run to the end of something that waits."""

    async def await_work() -> T:
        return await work

    return asyncio.run(await_work())

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
    from dray.client.rest_client import Caller

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Server:
    """Which server is meant."""

    kubeconfig: str
    context: str

    @property
    def is_named(self) -> bool:
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
async def reached(kubeconfig: str, context: str) -> AsyncIterator[tuple[Client, Caller]]:
    """A client of the server, and its caller for paths that are no resources.

    A server that does not answer, or does not know us, is told with the file that names it.
    """
    from dray.client.client import Client
    from dray.client.config.kubeconfig import find_access
    from dray.client.errors import Unauthorized, Unreachable
    from dray.client.rest_client import Caller, Habits
    from dray.client.transports.http import Http
    from dray.errors import InputError

    access = find_access(kubeconfig, context)
    transport = Http(access)
    habits = Habits()
    client = Client(transport, habits)
    try:
        yield client, Caller(transport, habits)
    except Unreachable as silent:
        raise InputError(f"{silent} (`{access.source}` names this server)") from None
    except Unauthorized:
        raise InputError(f"{access.server} does not accept the credentials in `{access.source}`") from None
    finally:
        await client.close()


def done(work: Awaitable[T]) -> T:
    """Run to the end of something that waits."""

    async def ended() -> T:
        return await work

    return asyncio.run(ended())

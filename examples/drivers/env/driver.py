"""The simplest thing a driver can do: parameters of classes and claims become environment variables.

It is the mock of KEP-3063, for structured claims: what the administrator wrote into a class arrives as
`ADMIN_NAME`, what a user wrote into a claim as `USER_NAME`, so that a container can check both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from dray.driver import Claim, Device, Driver, Ready, device, run

VARIABLE_PREFIXES: Final = {"class": "ADMIN_", "claim": "USER_"}


class Variables(msgspec.Struct, frozen=True):
    """The parameters: variables by their names."""

    env: dict[str, str] = {}


class EnvDriver(Driver):
    """One device on every node that any number of claims may use at once."""

    name = "env.example.com"
    parameters = Variables

    def devices(self) -> Iterator[Device]:
        yield device("environment", shared=True)

    def prepare(self, claim: Claim) -> Iterator[Ready]:
        for got in claim.devices:
            yield Ready(
                got,
                env={
                    f"{VARIABLE_PREFIXES[setting.source]}{name.upper()}": value
                    for setting in got.config
                    for name, value in setting.parameters.env.items()
                },
            )


if __name__ == "__main__":
    run(EnvDriver)

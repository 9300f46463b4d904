"""A driver that turns the parameters of classes and claims into environment variables.

It is the mock of KEP-3063 for structured claims: the variables of a class get the prefix `ADMIN_`, those of a
claim `USER_`, so that a container can check both.
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

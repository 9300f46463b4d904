"""The mock of KEP-3063 for classic claims: parameters of class and claim become environment variables.

This is the part on the node. The class is for the controller, which hands on what it says in the attributes
of the claim; the claim's own parameters the node reads from the claim.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from dray.driver import ClassicClaim, ClassicDriver, Ready, run
from dray_examples.env.driver import PREFIXES, Variables

NAME: Final = "classic-env.example.com"
FROM_CLASS: Final = "class"
"""The attribute with what the class says."""


class ClassicEnv(ClassicDriver):
    """Turns parameters into variables."""

    name = NAME
    parameters = Variables

    def prepare(self, claim: ClassicClaim) -> Iterator[Ready]:
        given = {
            "class": json.loads(claim.attributes.get(FROM_CLASS, "{}")),
            "claim": {} if claim.parameters is None else claim.parameters.env,
        }
        yield Ready(
            env={
                f"{PREFIXES[source]}{name.upper()}": value
                for source, variables in given.items()
                for name, value in variables.items()
            }
        )


if __name__ == "__main__":
    run(ClassicEnv)

"""The mock driver of KEP-3063 for classic claims: parameters of class and claim become environment variables.

One module, two programs: as `controller` it allocates without a limit, and copies the parameters of the class
into the attributes of the claim; on a node it reads these attributes and the claim's own parameters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

from dray.driver import ClassicClaim, ClassicDriver, Ready, run
from dray.driver.classic import (
    ClassicAllocation,
    ClassicClaimRequest,
    ClassicController,
    HeldClaim,
)
from dray_examples.env.driver import VARIABLE_PREFIXES, Variables

NAME: Final = "classic-env.example.com"
CLASS_ATTRIBUTE: Final = "class"
"""The attribute with the parameters of the class."""


class EnvController(ClassicController):
    """Allocates every claim, on any node."""

    name = NAME
    parameters = Variables
    class_parameters = Variables

    def allocate(
        self, need: ClassicClaimRequest, node: str | None, held: Sequence[HeldClaim]
    ) -> ClassicAllocation:
        variables = {} if need.class_parameters is None else need.class_parameters.env
        return ClassicAllocation(node, {CLASS_ATTRIBUTE: json.dumps(variables)}, user_limit=-1)


class ClassicEnv(ClassicDriver):
    """Turns parameters into environment variables."""

    name = NAME
    parameters = Variables
    controller = EnvController

    def prepare(self, claim: ClassicClaim) -> Iterator[Ready]:
        given = {
            "class": json.loads(claim.attributes.get(CLASS_ATTRIBUTE, "{}")),
            "claim": {} if claim.parameters is None else claim.parameters.env,
        }
        yield Ready(
            env={
                f"{VARIABLE_PREFIXES[source]}{name.upper()}": value
                for source, variables in given.items()
                for name, value in variables.items()
            }
        )


if __name__ == "__main__":
    run(ClassicEnv)

"""The mock of KEP-3063 for classic claims: the part that allocates, without ever running out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from dray.client.connect import connected
from dray.driver.classic import Allocated, ClassicController, Held, Need
from dray.driver.negotiating import Negotiation
from dray_examples.env.classic import FROM_CLASS, NAME
from dray_examples.env.driver import Variables


class Envs(ClassicController):
    """Gives every claim what its class says, on whatever node."""

    name = NAME
    parameters = Variables
    class_parameters = Variables

    def allocate(self, need: Need, node: str | None, held: Sequence[Held]) -> Allocated:
        variables = {} if need.class_parameters is None else need.class_parameters.env
        return Allocated(node, {FROM_CLASS: json.dumps(variables)}, user_limit=-1)


async def main() -> None:
    async with connected() as client:
        await Negotiation(client, Envs()).run()


if __name__ == "__main__":
    asyncio.run(main())

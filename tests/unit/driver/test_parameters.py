"""Parameters compared with a schema: every problem is reported at once, with its field."""

from __future__ import annotations

import asyncio
import enum
from typing import Any, ClassVar, Literal

import msgspec
import pytest

from dray.driver.parameters import InvalidParametersError, build_json_schema, decode_parameters
from dray.values.quantity import Quantity
from tests.unit.driver.driver_node import DRIVER, NODE, Gpu, open_driver_node


class Strategy(enum.Enum):
    """How to share."""

    TIME = "TimeSlicing"
    SPACE = "SpacePartitioning"


class Sharing(msgspec.Struct):
    """A part of the parameters."""

    strategy: Strategy
    memory: Quantity | None = None
    weight: int | str = 1


class Settings(msgspec.Struct):
    """The parameters of a driver."""

    sharing: Sharing | None = None
    mode: Literal["fast", "safe"] = "safe"
    count: msgspec.Raw | int = 1
    env: dict[str, str] = {}
    sizes: list[int] = []


class Other(msgspec.Struct, rename="camel"):
    """Parameters of another kind."""

    batch_size: int


PLACE = "config[0].opaque.parameters"


def wrong(schema: Any, written: str) -> list[str]:
    with pytest.raises(InvalidParametersError) as refused:
        decode_parameters(schema, written.encode(), PLACE)
    return [str(problem).removeprefix(PLACE) for problem in refused.value.problems]


@pytest.mark.parametrize(
    ("written", "problems"),
    [
        ("[]", [": expected an object, got `[]`"]),
        ("null", [": expected an object, got `null`"]),
        (
            '{"sharing": {"strategy": "x"}}',
            [".sharing.strategy: expected one of `TimeSlicing`, `SpacePartitioning`, got `\"x\"`"],
        ),
        ('{"sharing": {}}', [".sharing.strategy: required, but not given"]),
        ('{"sharing": 3}', [".sharing: expected an object, got `3`"]),
        ('{"shoring": {}}', [".shoring: unknown field; did you mean `sharing`?"]),
        (
            '{"zzz": 1}',
            [".zzz: unknown field; expected one of `sharing`, `mode`, `count`, `env`, `sizes`"],
        ),
        ('{"mode": "slow"}', ['.mode: expected one of `fast`, `safe`, got `"slow"`']),
        ('{"mode": true}', [".mode: expected one of `fast`, `safe`, got `true`"]),
        ('{"env": {"A": 1}}', [".env[A]: expected a text, got `1`"]),
        ('{"env": []}', [".env: expected an object, got `[]`"]),
        ('{"sizes": [1, "b", true]}', [
            '.sizes[1]: expected a whole number, got `"b"`',
            ".sizes[2]: expected a whole number, got `true`",
        ]),
        ('{"sizes": {}}', [".sizes: expected a list, got `{}`"]),
        (
            '{"sharing": {"strategy": "TimeSlicing", "weight": []}}',
            [".sharing.weight: expected a whole number or a text, got `[]`"],
        ),
        ('{"mode": "slow", "env": 1}', [
            '.mode: expected one of `fast`, `safe`, got `"slow"`',
            ".env: expected an object, got `1`",
        ]),
    ],
)  # fmt: skip
def test_every_problem_is_reported_with_its_field(written: str, problems: list[str]) -> None:
    assert wrong(Settings, written) == problems


def test_quantities_are_decoded_and_validated() -> None:
    found = decode_parameters(Settings, b'{"sharing": {"strategy": "TimeSlicing", "memory": "20Gi"}}')
    assert found.sharing.memory == Quantity.parse("20Gi")
    (problem,) = wrong(Settings, '{"sharing": {"strategy": "TimeSlicing", "memory": "20Gz"}}')
    assert problem.startswith(".sharing.memory: expected an amount, for example `20Gi`: ")


def test_constraints_of_msgspec_hold_too() -> None:
    class Bounded(msgspec.Struct):
        level: int
        name: str = ""

        def __post_init__(self) -> None:
            if self.level > 9:
                raise ValueError("level 9 is the highest")

    assert wrong(Bounded, '{"level": 10}') == [": level 9 is the highest"]


def test_version_and_kind_may_be_written_and_choose_among_schemas() -> None:
    assert decode_parameters(Settings, b'{"apiVersion": "g/v1", "kind": "S", "mode": "fast"}') == Settings(
        mode="fast"
    )
    schemas = {"Settings": Settings, "g/v1/Other": Other}
    assert decode_parameters(schemas, b'{"kind": "Settings"}') == Settings()
    assert decode_parameters(schemas, b'{"apiVersion": "g/v1", "kind": "Other", "batchSize": 3}') == Other(3)
    assert wrong(schemas, '{"kind": "Nothing"}') == [
        '.kind: expected one of `Settings`, `g/v1/Other`, got `"Nothing"`'
    ]
    assert wrong(schemas, "7") == [": expected an object with `kind`, got `7`"]


def test_a_driver_without_schema_takes_no_parameters_and_one_with_dict_takes_any() -> None:
    assert wrong(None, "{}") == [": this driver takes no parameters"]
    assert decode_parameters(dict, b'{"a": [1]}') == {"a": [1]}
    assert wrong(dict[str, str], '{"a": 1}') == ["[a]: expected a text, got `1`"]


def test_invalid_json_is_an_error() -> None:
    (problem,) = wrong(Settings, "{")
    assert problem.startswith(": not JSON: ")


def test_the_schema_is_rendered_as_json_schema() -> None:
    schema = build_json_schema(Settings)
    assert set(schema["$defs"]["Settings"]["properties"]) == {"sharing", "mode", "count", "env", "sizes"}
    assert [each["title"] for each in build_json_schema({"A": Settings, "B": Other})["oneOf"]] == ["A", "B"]
    assert build_json_schema(None) is False


def test_a_claim_with_wrong_parameters_is_refused_with_the_field() -> None:
    async def scenario() -> None:
        class Choosy(Gpu):
            parameters = Settings

        async with open_driver_node() as node:
            gpu = Choosy()
            async with node.run_driver(gpu) as agent:
                result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": "gpu-0"}
                opaque = {"driver": DRIVER, "parameters": {"sharing": {"strategy": "Magic"}}}
                theirs = {"driver": "other.example.com", "parameters": {"any": "thing"}}
                uid = await node.create_allocated_claim(
                    "c",
                    [result],
                    config=[
                        {"source": "FromClaim", "opaque": theirs},
                        {"source": "FromClaim", "opaque": opaque},
                    ],
                )
                assert await agent.expect_refusal(uid, "c") == (
                    f"driver {DRIVER}: claim default/c: config[1].opaque.parameters.sharing.strategy: "
                    'expected one of `TimeSlicing`, `SpacePartitioning`, got `"Magic"`'
                )
                assert gpu.calls == []

    asyncio.run(scenario())


def test_unprepare_gets_the_claim_as_it_was_prepared_even_after_a_restart() -> None:
    async def scenario() -> None:
        class Choosy(Gpu):
            parameters: ClassVar[Any] = Settings

        async with open_driver_node() as node:
            first, second = Choosy(), Choosy()
            async with node.run_driver(first) as agent:
                result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": "gpu-0"}
                opaque = {"driver": DRIVER, "parameters": {"mode": "fast"}}
                config = [{"source": "FromClaim", "opaque": opaque}]
                uids = [
                    await node.create_allocated_claim(
                        name, [result | {"device": f"gpu-{number}"}], config=config
                    )
                    for number, name in enumerate(("a", "b"))
                ]
                await agent.prepare_ok(uids[0], "a")
                await agent.prepare_ok(uids[1], "b")
            async with node.run_driver(second) as agent:
                await agent.unprepare_ok(uids[0], "a")
                Choosy.parameters = Other  # the schema is another after an update
                await agent.unprepare_ok(uids[1], "b")
            assert second.received[0][1].devices == first.received[0][1].devices
            assert second.received[0][1].devices[0].parameters == Settings(mode="fast")
            assert second.received[1][1].devices[0].config == ()

    asyncio.run(scenario())

"""Options of requests that were not validated."""

from __future__ import annotations

import base64

import pytest

from tests.contract.api import APPLY, path, serving
from tests.contract.documents import config

CONFIGS = path("configmaps")


@pytest.mark.parametrize("manager", ["x" * 129, "line\nbreak", "nul\x00"])
async def test_the_name_of_a_manager_is_short_and_readable(manager: str) -> None:
    """It is kept with the object and shown to people."""
    async with serving() as api:
        ways = (
            await api.ask("POST", CONFIGS, config("c"), fieldManager=manager),
            await api.ask(
                "PATCH", f"{CONFIGS}/c", config("c"), headers={"content-type": APPLY}, fieldManager=manager
            ),
        )
        for said in ways:
            assert said.code == 422
            assert "fieldManager" in said.message
            assert ("128 bytes" if len(manager) > 128 else "printable") in said.message


async def test_the_name_of_a_program_is_made_short_and_readable() -> None:
    async with serving() as api:
        agent = {"user-agent": "odd\x07" + "x" * 300 + "/1.0"}
        said = await api.ask("POST", CONFIGS, config("c"), headers=agent)
        (entry,) = said.document["metadata"]["managedFields"]
        assert entry["manager"] == "odd" + "x" * 125


async def test_a_continue_token_from_another_history_begins_anew() -> None:
    """After a restore, or when it is made up; it was a server error."""
    token = base64.urlsafe_b64encode(b'{"v":"dray/v1","rv":99999999999,"start":"a"}').decode().rstrip("=")
    async with serving() as api:
        said = await api.ask("GET", CONFIGS, limit=1, continue_=token)
        assert (said.code, said.reason) == (410, "Expired")
        assert "start a new list" in said.message

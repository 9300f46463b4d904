"""Ways around the ledger that existed once: a device belongs to one claim, however the allocation is
written.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.api import path, serving
from tests.contract.documents import allocation, claim, namespace, request

ADMIN = {"resource.kubernetes.io/admin-access": "true"}


@pytest.mark.parametrize("asked", [{}, {"adminAccess": False}])
async def test_admin_access_that_nobody_asked_for_is_refused(asked: Any) -> None:
    """Admin access holds no device; a result that says so of an ordinary request handed it out unseen."""
    home = namespace("admins")
    home["metadata"]["labels"] = ADMIN
    async with serving() as api:
        await api.create(home, "/api/v1/namespaces")
        for name in ("first", "second"):
            held = await api.create(claim(name, "admins", requests=[request(**asked)]))
            where = path("resourceclaims", name, namespace="admins", sub="status")
            sneaky = {**held, "status": {"allocation": allocation(adminAccess=True)}}
            said = await api.ask("PUT", where, sneaky)
            assert said.code == 422
            assert "status.allocation.devices.results[0].adminAccess" in said.message
            assert "request `gpu` does not ask for admin access" in said.message


async def test_admin_access_that_was_asked_for_holds_nothing() -> None:
    home = namespace("admins")
    home["metadata"]["labels"] = ADMIN
    async with serving() as api:
        await api.create(home, "/api/v1/namespaces")
        for name in ("first", "second"):
            held = await api.create(claim(name, "admins", requests=[request(adminAccess=True)]))
            where = path("resourceclaims", name, namespace="admins", sub="status")
            await api.put({**held, "status": {"allocation": allocation(adminAccess=True)}}, where)

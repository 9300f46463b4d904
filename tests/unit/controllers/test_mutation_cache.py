"""The mutation cache: our own writes count until the informer shows them, and no longer."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.meta import ObjectMeta, OwnerRef
from dray.api.resource import ResourceClaim
from dray.client.informers.indexer import IndexedObject
from dray.client.informers.informer import Informer
from dray.client.object_refs import ObjectKey
from dray.controllers.mutation_cache import SWEEP_SIZE, MutationCache
from tests.unit.client.fakeapi import FakeApi, client_of


class Behind:
    """An informer that shows what it is told to."""

    def __init__(self) -> None:
        self.informer: Informer[ResourceClaim] = Informer(client_of(FakeApi()), ResourceClaim)
        self.informer.add_index("owner", _owners)
        self.recent = MutationCache(ResourceClaim, self.informer, "owner", _owners)

    def shows(self, claim: ResourceClaim) -> None:
        metadata = claim.metadata
        seen = IndexedObject(claim, int(metadata.resource_version), metadata.uid)
        self.informer._indexer.put(ObjectKey(metadata.namespace, metadata.name), seen)

    def loses(self, claim: ResourceClaim) -> None:
        self.informer._indexer.remove(ObjectKey(claim.metadata.namespace, claim.metadata.name))

    def get(self, name: str = "c") -> Any:
        found = self.recent.get("ns", name)
        return None if found is None else int(found.metadata.resource_version)

    def owned(self, uid: str) -> list[str]:
        return sorted(each.metadata.name for each in self.recent.get_by_index(uid))


def _owners(claim: ResourceClaim) -> list[str]:
    return [owner.uid for owner in claim.metadata.owner_references]


def claim(version: int, name: str = "c", uid: str = "u", owner: str = "") -> ResourceClaim:
    owners = (OwnerRef(api_version="v1", kind="Pod", name="p", uid=owner),) if owner else ()
    return ResourceClaim(
        metadata=ObjectMeta(
            name=name, namespace="ns", uid=uid, resource_version=str(version), owner_references=owners
        )
    )


@pytest.fixture
def behind() -> Behind:
    return Behind()


def test_what_was_written_is_known_before_it_is_shown(behind):
    behind.recent.put(claim(5))
    assert behind.get() == 5
    behind.shows(claim(4))
    assert behind.get() == 5
    behind.shows(claim(5))
    assert (behind.get(), len(behind.recent)) == (5, 0)
    behind.shows(claim(7))
    assert behind.get() == 7


def test_an_older_answer_does_not_replace_a_newer_one(behind):
    behind.recent.put(claim(6))
    behind.recent.put(claim(5))
    assert behind.get() == 6


def test_what_is_gone_is_not_seen_although_it_is_shown(behind):
    behind.shows(claim(3))
    behind.recent.remove(claim(3))
    assert behind.get() is None
    behind.shows(claim(4))
    assert behind.get() is None
    behind.loses(claim(4))
    assert (behind.get(), len(behind.recent)) == (None, 0)


def test_another_object_of_the_name_is_seen(behind):
    behind.shows(claim(3))
    behind.recent.remove(claim(3))
    behind.shows(claim(9, uid="other"))
    assert behind.get() == 9


def test_what_went_while_we_knew_better_is_gone(behind):
    behind.shows(claim(3))
    behind.recent.put(claim(5))
    behind.loses(claim(3))
    assert behind.get() is None


def test_the_index_knows_what_was_written(behind):
    behind.shows(claim(3, "a", owner="p1"))
    behind.recent.put(claim(5, "b", owner="p1"))
    assert behind.owned("p1") == ["a", "b"]
    behind.recent.put(claim(6, "a", owner="p2"))
    assert (behind.owned("p1"), behind.owned("p2")) == (["b"], ["a"])
    behind.recent.remove(claim(3, "a"))
    assert behind.owned("p2") == []


def test_what_was_made_and_deleted_unseen_is_forgotten(behind):
    """A list that came later than our write, and does not have it."""
    behind.recent.put(claim(5))
    behind.informer._reflector._replace({}, 8)
    assert (behind.get(), len(behind.recent)) == (None, 0)


def test_obsolete_knowledge_does_not_pile_up(behind):
    for number in range(SWEEP_SIZE):
        behind.recent.put(claim(5, f"c-{number}"))
    behind.informer._reflector._replace({}, 8)
    behind.recent.put(claim(9))
    assert len(behind.recent) == 1

"""The classic path: classes, claims, and the phases of a claim."""

from __future__ import annotations

import msgspec
import pytest

from dray.api.strategies.defaults import apply_defaults
from dray.api.validation import validate_create, validate_status_update, validate_stored, validate_update
from dray.api.validation.kinds.classic import PHASES, TRANSITIONS
from tests.unit.api.validation.building import (
    OTHER_UID,
    UID,
    classic_claim,
    classic_class,
    cluster_metadata,
    found,
    metadata,
    user,
)

req = pytest.mark.req

# --- classes ---


@req("K3063-023", "K3063-059")
def test_a_class_is_of_the_cluster_and_names_a_driver():
    assert not validate_create(classic_class(parameters={"initCommand": ["/bin/init"]}))
    assert not validate_create(classic_class())
    assert found(validate_create(classic_class(driverName=""))) == ["Required driverName"]
    assert found(validate_create(classic_class(driverName="a b"))) == ["Invalid driverName"]
    assert found(validate_create(classic_class(meta=cluster_metadata(namespace="ns")))) == [
        "Forbidden metadata.namespace"
    ]


def test_a_class_may_change():
    assert not validate_update(classic_class(driverName="other.example.com"), classic_class())


@pytest.mark.parametrize("parameters", [{"a": 1}, [1, 2], "text", 1, True])
def test_parameters_are_arbitrary(parameters):
    assert not validate_create(classic_class(parameters=parameters))
    assert not validate_create(classic_claim(parameters=parameters))


def test_parameters_that_are_no_json():
    spoiled = classic_class(parameters={"a": 1})
    msgspec.structs.force_setattr(spoiled, "parameters", msgspec.Raw(b"{"))
    assert found(validate_create(spoiled)) == ["Invalid parameters"]


# --- claims ---


@req("K3063-026", "K3063-063", "K3063-064", "K3063-065")
def test_a_claim_has_a_namespace_a_class_and_parameters():
    """Whether the class exists is not asked: validation sees no other object."""
    assert not validate_create(classic_claim(resourceClassName="no-such-class", parameters={"size": 3}))
    assert found(validate_create(classic_claim(resourceClassName=""))) == ["Required spec.resourceClassName"]
    assert found(validate_create(classic_claim(resourceClassName="A"))) == ["Invalid spec.resourceClassName"]
    assert found(validate_create(classic_claim(meta={"name": "thing"}))) == ["Required metadata.namespace"]


@req("K3063-067")
@pytest.mark.parametrize("mode", ["Immediate", "Delayed", "Later", "immediate"])
def test_a_claim_is_allocated_at_once_or_delayed(mode):
    known = mode in ("Immediate", "Delayed")
    expected = [] if known else ["NotSupported spec.allocationMode"]
    assert found(validate_create(classic_claim(allocationMode=mode))) == expected


@req("K3063-066", "K3063-075")
def test_delayed_and_one_user_by_default():
    defaulted = apply_defaults(classic_claim(allocationMode=""), now="2026-01-01T00:00:00Z")
    assert (defaulted.spec.allocation_mode, defaulted.status.user_limit) == ("Delayed", 1)
    assert not validate_stored(defaulted)


@req("K3063-029")
def test_the_spec_never_changes():
    old = classic_claim(parameters={"size": 3})
    assert found(validate_update(classic_claim(parameters={"size": 4}), old)) == ["Invalid spec"]
    assert found(validate_update(classic_claim(resourceClassName="other"), old)) == ["Invalid spec"]
    assert found(validate_update(classic_claim(parameters={"size": 3}, allocationMode="Immediate"), old)) == [
        "Invalid spec"
    ]
    same = classic_claim(meta=metadata(labels={"a": "b"}), parameters={"size": 3})
    assert not validate_update(same, old)


# --- phases ---


def in_phase(phase, **status):
    return classic_claim(status={"phase": phase, **status})


LEGAL = {("Pending", "Allocated"), ("Allocated", "Reallocate"), ("Reallocate", "Pending")}


@req("K3063-082")
@pytest.mark.parametrize("before", PHASES)
@pytest.mark.parametrize("after", PHASES)
def test_only_three_steps_are_legal(before, after):
    legal = before == after or (before, after) in LEGAL
    errors = found(validate_status_update(in_phase(after), in_phase(before)))
    assert errors == ([] if legal else ["Invalid status.phase"])


def test_the_table_of_steps_is_complete():
    assert {(before, after) for before, steps in TRANSITIONS.items() for after in steps} == LEGAL


GOING = metadata(deletionTimestamp="2026-01-01T00:00:00Z")


@req("K3063-082")
@pytest.mark.parametrize("before", PHASES)
@pytest.mark.parametrize("after", PHASES)
def test_one_more_step_is_legal_at_the_end(before, after):
    legal = before == after or (before, after) in {*LEGAL, ("Allocated", "Pending")}
    old, new = (classic_claim(meta=GOING, status={"phase": phase}) for phase in (before, after))
    assert found(validate_status_update(new, old)) == ([] if legal else ["Invalid status.phase"])


@req("K3063-115")
def test_a_claim_in_use_is_not_freed():
    used = {"reservedFor": [user()]}
    old = in_phase("Allocated", **used)
    assert found(validate_status_update(in_phase("Reallocate", **used), old)) == ["Forbidden status.phase"]
    assert not validate_status_update(in_phase("Reallocate"), old)
    going = classic_claim(meta=GOING, status={"phase": "Allocated", **used})
    freed = classic_claim(meta=GOING, status={"phase": "Pending", **used})
    assert found(validate_status_update(freed, going)) == ["Forbidden status.phase"]


@req("K3063-082")
def test_a_claim_without_a_phase_is_pending():
    assert not validate_status_update(in_phase("Allocated"), classic_claim())
    assert found(validate_status_update(in_phase("Reallocate"), classic_claim())) == ["Invalid status.phase"]


def test_an_unknown_phase_is_refused():
    assert found(validate_status_update(in_phase("Deallocate"), in_phase("Allocated"))) == [
        "Invalid status.phase",
        "NotSupported status.phase",
    ]


def test_a_dump_may_be_in_any_phase():
    for phase in PHASES:
        assert not validate_stored(in_phase(phase))


# --- users ---


@req("K3063-043", "K3063-075")
@pytest.mark.parametrize(
    ("limit", "users", "expected"),
    [
        (None, 2, []),
        (1, 1, []),
        (1, 2, ["TooMany status.reservedFor"]),
        (2, 2, []),
        (-1, 2, []),
        (0, 0, ["Invalid status.userLimit"]),
        (-2, 0, ["Invalid status.userLimit"]),
    ],
)
def test_how_many_pods_may_use_a_claim(limit, users, expected):
    fields = {} if limit is None else {"userLimit": limit}
    reserved = [user(UID), user(OTHER_UID)][:users]
    new = in_phase("Allocated", reservedFor=reserved, **fields)
    assert found(validate_status_update(new, in_phase("Allocated"))) == expected


def test_users_are_named_and_differ():
    unnamed = in_phase("Allocated", reservedFor=[{}])
    assert len(found(validate_status_update(unnamed, in_phase("Allocated")))) == 4
    twice = in_phase("Allocated", userLimit=2, reservedFor=[user(), user()])
    assert found(validate_status_update(twice, in_phase("Allocated"))) == ["Duplicate status.reservedFor[1]"]


def test_only_an_allocated_claim_that_is_not_deleted_gets_users():
    pending = in_phase("Pending", reservedFor=[user()])
    assert found(validate_status_update(pending, in_phase("Pending"))) == ["Forbidden status.reservedFor"]
    assert not validate_status_update(in_phase("Allocated", reservedFor=[user()]), in_phase("Pending"))
    old = classic_claim(meta=GOING, status={"phase": "Allocated"})
    new = classic_claim(meta=GOING, status={"phase": "Allocated", "reservedFor": [user()]})
    assert found(validate_status_update(new, old)) == ["Forbidden status.reservedFor"]


# --- the negotiation ---

NEGOTIATION = {
    "sound": (
        {
            "scheduler": {"selectedNode": "node-a", "potentialNodes": ["node-a", "node-b"]},
            "driver": {
                "unsuitableNodes": ["node-b"],
                "availableOnNodes": {"nodeSelectorTerms": [{"matchExpressions": []}]},
            },
        },
        [],
    ),
    "bad names": (
        {
            "scheduler": {"selectedNode": "A", "potentialNodes": ["", "node-a", "node-a"]},
            "driver": {"unsuitableNodes": ["B"], "availableOnNodes": {}},
        },
        [
            "Duplicate {}.scheduler.potentialNodes[2]",
            "Invalid {}.driver.unsuitableNodes[0]",
            "Invalid {}.scheduler.selectedNode",
            "Required {}.driver.availableOnNodes.nodeSelectorTerms",
            "Required {}.scheduler.potentialNodes[0]",
        ],
    ),
}


@pytest.mark.parametrize(("scheduling", "expected"), NEGOTIATION.values(), ids=NEGOTIATION)
def test_negotiation(scheduling, expected):
    errors = found(validate_status_update(in_phase("Pending", scheduling=scheduling), in_phase("Pending")))
    assert errors == [line.format("status.scheduling") for line in expected]


def test_what_the_driver_returned():
    sound = in_phase(
        "Allocated", driverName="gpu.example.com", attributes={"any": "thing"}, availableOnNodes=None
    )
    assert not validate_status_update(sound, in_phase("Pending"))
    odd = in_phase("Allocated", driverName="a b", availableOnNodes={})
    assert found(validate_status_update(odd, in_phase("Pending"))) == [
        "Invalid status.driverName",
        "Required status.availableOnNodes.nodeSelectorTerms",
    ]

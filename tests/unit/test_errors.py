"""The exception tree: one base class for broken input, and every problem reported."""

from __future__ import annotations

import pytest

from dray import errors
from dray.api.fields import FieldError, FieldErrorType
from dray.errors import DecodeError, DrayError, GateError, InputError, InvalidError

EMPTY_NAME = FieldError(FieldErrorType.REQUIRED, "metadata.name", "", "name or generateName is required")
BAD_COUNT = FieldError(
    FieldErrorType.INVALID, "spec.devices.requests[0].exactly.count", -1, "must be greater than zero"
)


@pytest.mark.parametrize("broken", [DecodeError("x"), InvalidError("x", ()), GateError("x")])
def test_broken_input_is_caught_by_one_base(broken):
    assert isinstance(broken, InputError)
    assert isinstance(broken, DrayError)


def test_the_tree_in_the_docstring_names_every_exception():
    drawn = errors.__doc__ or ""
    raised = [item.__name__ for item in vars(errors).values() if isinstance(item, type)]
    exceptions = [name for name in raised if issubclass(getattr(errors, name), Exception)]
    assert len(exceptions) == 6
    assert all(name in drawn for name in exceptions)


def test_an_object_with_one_violation_names_it():
    error = InvalidError('ResourceClaim "gpu"', [EMPTY_NAME])
    assert str(error) == (
        'ResourceClaim "gpu" is invalid: metadata.name: Required value: name or generateName is required'
    )


def test_an_object_with_two_violations_names_both():
    error = InvalidError('ResourceClaim "gpu"', [EMPTY_NAME, BAD_COUNT])
    assert str(error) == (
        'ResourceClaim "gpu" is invalid: [metadata.name: Required value: name or generateName is required, '
        "spec.devices.requests[0].exactly.count: Invalid value: -1: must be greater than zero]"
    )
    assert error.problems == (EMPTY_NAME, BAD_COUNT)


def test_a_decode_error_keeps_its_problems():
    assert DecodeError("cannot be read", [BAD_COUNT]).problems == (BAD_COUNT,)
    assert DecodeError("not JSON").problems == ()

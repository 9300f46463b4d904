"""Request bodies: errors name fields as the client wrote them, and keep everything else."""

from __future__ import annotations

import pytest

from dray.api.fields import BelowMinimum, FieldError, FieldErrorType
from dray.api.kinds import get_kind
from dray.server.http.request_body import convert_error_paths

CLAIM = get_kind("resource.k8s.io", "ResourceClaim")
PATH = "spec.devices.requests[0].exactly.count"


@pytest.mark.parametrize(
    ("version", "path"), [("v1", PATH), ("v1beta2", PATH), ("v1beta1", "spec.devices.requests[0].count")]
)
def test_an_error_has_the_path_of_the_clients_version_and_keeps_its_violation(version, path):
    error = FieldError(FieldErrorType.INVALID, PATH, 0, "must be greater than zero", BelowMinimum("1"))
    (converted,) = convert_error_paths(CLAIM, version, [error])
    assert converted == FieldError(FieldErrorType.INVALID, path, 0, "must be greater than zero")
    assert converted.violation == BelowMinimum("1")

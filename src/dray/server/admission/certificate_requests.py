"""Certificate signing requests: record who asks, which nobody may set.

Whoever approves or signs a request relies on the user in its spec. The server therefore writes it on create,
and the spec is immutable.
"""

from __future__ import annotations

from typing import Final

from dray.api.kinds import get_kind
from dray.server.http.requests import RequestUser
from dray.server.objects.pending_object import PendingObject

_REQUEST: Final = get_kind("certificates.k8s.io", "CertificateSigningRequest")
_USER_FIELDS: Final = ("username", "uid", "groups", "extra")


def set_requester(pending: PendingObject, user: RequestUser) -> PendingObject:
    """A new certificate signing request with the user who creates it; other kinds are left as they are."""
    if pending.kind is not _REQUEST:
        return pending
    spec = pending.document.get("spec")
    if not isinstance(spec, dict):
        return pending
    given = {name: value for name, value in spec.items() if name not in _USER_FIELDS}
    return pending.replace_field("spec", {**given, **user.to_document()})

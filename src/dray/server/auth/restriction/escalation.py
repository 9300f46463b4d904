"""Nobody gives away rights they do not have.

Theory of operation: who writes a role must have every right in it, and who writes a binding every right of
the role it gives; unless they have the verb `escalate` on the role, or `bind` on the role that is given. A
role that is put together from others can come to hold anything, so it takes all rights to make one. Roles and
bindings that could not be read later are refused now.
"""

from __future__ import annotations

from typing import Any

from dray.api.fields import ROOT, FieldError, invalid
from dray.api.json_text import write_json
from dray.server.admission.change import NOTHING, UPDATE, Change, Extra
from dray.server.auth.authz.authorizer import Access
from dray.server.auth.authz.policy_rules import Asked, PolicyRule, read_rules, uncovered
from dray.server.auth.authz.rbac import (
    CLUSTER_ROLE,
    GROUP,
    MASTER_RULES,
    ROLE,
    RoleRef,
    read_selectors,
    read_subjects,
    role_ref,
)
from dray.server.http.errors import forbidden
from dray.server.http.errors import invalid as invalid_object
from dray.server.http.requests import MASTERS

_SHOWN = 5


class EscalationRule:
    """Judges roles and bindings."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def judge(self, change: Change) -> Extra:
        if change.kind.group != GROUP or change.document is None:
            return NOTHING
        if change.kind in (ROLE, CLUSTER_ROLE):
            self._judge_role(change, change.document)
        else:
            self._judge_binding(change, change.document)
        return NOTHING

    def _judge_role(self, change: Change, document: Any) -> None:
        old = change.old_document or {}
        rules = _read(change, "rules", lambda: read_rules(document.get("rules")))
        _read(change, "aggregationRule", lambda: read_selectors(document))
        wanted: list[PolicyRule] = []
        if document.get("rules") != old.get("rules"):
            wanted += rules
        if document.get("aggregationRule") != old.get("aggregationRule"):
            wanted += MASTER_RULES
        if change.kind is CLUSTER_ROLE and change.operation == UPDATE and _labels(document) != _labels(old):
            # Labels put cluster roles together: they pass on all that the role allows.
            wanted += self._access.rbac.rules_of(RoleRef(CLUSTER_ROLE.name, "", change.name))
        asked = Asked("escalate", GROUP, change.kind.plural, "", change.namespace, change.name)
        self._check(change, wanted, asked)

    def _judge_binding(self, change: Change, document: Any) -> None:
        old = change.old_document or {}
        ref: RoleRef = _read(change, "roleRef", lambda: role_ref(document, change.namespace))
        _read(change, "subjects", lambda: read_subjects(document, change.namespace))
        if change.operation == UPDATE and document.get("roleRef") != old.get("roleRef"):
            problem = invalid(ROOT.field("roleRef"), document["roleRef"], "cannot change roleRef")
            raise invalid_object(change.kind, change.name, [problem])
        if document.get("subjects") == old.get("subjects") and change.operation == UPDATE:
            return
        plural = CLUSTER_ROLE.plural if ref.kind == CLUSTER_ROLE.name else ROLE.plural
        asked = Asked("bind", GROUP, plural, "", change.namespace, ref.name)
        # A role that is not there yet may come to hold anything.
        known = self._access.rbac.knows(ref)
        self._check(change, self._access.rbac.rules_of(ref) if known else MASTER_RULES, asked)

    def _check(self, change: Change, wanted: Any, asked: Asked) -> None:
        user = change.request.user
        if not wanted or MASTERS in user.groups or self._access.allows(user, asked):
            return
        missing = uncovered(wanted, self._access.rbac.rules_for(user, change.namespace))
        if missing:
            shown = ", ".join(write_json(piece.document()).decode() for piece in missing[:_SHOWN])
            more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
            why = (
                f'user "{user.name}" is attempting to grant RBAC permissions not currently held: '
                f'{shown}{more}; the verb "{asked.verb}" on {asked.resource} "{asked.name}" would allow it'
            )
            raise forbidden(change.kind, change.name, why)


def _labels(document: Any) -> Any:
    return document["metadata"].get("labels") or {}


def _read(change: Change, field: str, reader: Any) -> Any:
    try:
        return reader()
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        value = (change.document or {}).get(field)
        problem: FieldError = invalid(ROOT.field(field), value, _text(error))
        raise invalid_object(change.kind, change.name, [problem]) from None


def _text(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"`{error.args[0]}` is missing"
    return str(error) if isinstance(error, ValueError) else "has not the form of this field"

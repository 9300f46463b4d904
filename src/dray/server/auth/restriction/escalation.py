"""Prevention of privilege escalation: nobody grants rights they do not have.

Theory of operation: writing a role requires every right in it, and writing a binding every right of its role;
unless the user has the verb `escalate` on the role, or `bind` on the role of the binding. An aggregated role
can come to contain anything, so it requires all rights. Roles and bindings that could not be parsed later are
refused now.
"""

from __future__ import annotations

from typing import Any, Final

from dray.api.fields import ROOT, FieldError, invalid
from dray.api.json_text import write_json
from dray.api.kinds import KINDS
from dray.server.admission.change import ADMITTED, CREATE, UPDATE, AdmissionEffects, ObjectChange, RuleScope
from dray.server.auth.authz.authorizer import UnionAuthorizer
from dray.server.auth.authz.policy_rules import AccessAttributes, PolicyRule, find_uncovered, read_rules
from dray.server.auth.authz.rbac import (
    CLUSTER_ROLE,
    GROUP,
    MASTER_RULES,
    ROLE,
    RoleRef,
    read_role_ref,
    read_selectors,
    read_subjects,
)
from dray.server.http.errors import new_forbidden
from dray.server.http.errors import new_invalid as invalid_object
from dray.server.http.requests import MASTERS

_MAX_SHOWN = 5


class EscalationRule:
    """Checks writes of roles and bindings."""

    scopes: Final = (RuleScope(tuple(kind for kind in KINDS if kind.group == GROUP), (CREATE, UPDATE)),)

    def __init__(self, authorizer: UnionAuthorizer) -> None:
        self._authorizer = authorizer

    def admit(self, change: ObjectChange) -> AdmissionEffects:
        if change.document is None:
            return ADMITTED
        if change.kind in (ROLE, CLUSTER_ROLE):
            self._check_role(change, change.document)
        else:
            self._check_binding(change, change.document)
        return ADMITTED

    def _check_role(self, change: ObjectChange, document: Any) -> None:
        old = change.old_document or {}
        rules = _read_field(change, "rules", lambda: read_rules(document.get("rules")))
        _read_field(change, "aggregationRule", lambda: read_selectors(document))
        wanted: list[PolicyRule] = []
        if document.get("rules") != old.get("rules"):
            wanted += rules
        if document.get("aggregationRule") != old.get("aggregationRule"):
            wanted += MASTER_RULES
        if (
            change.kind is CLUSTER_ROLE
            and change.operation == UPDATE
            and _read_labels(document) != _read_labels(old)
        ):
            # Labels aggregate cluster roles: they pass on all that the role allows.
            wanted += self._authorizer.rbac.get_role_rules(RoleRef(CLUSTER_ROLE.name, "", change.name))
        attributes = AccessAttributes(
            "escalate", GROUP, change.kind.plural, "", change.namespace, change.name
        )
        self._check_escalation(change, wanted, attributes)

    def _check_binding(self, change: ObjectChange, document: Any) -> None:
        old = change.old_document or {}
        ref: RoleRef = _read_field(change, "roleRef", lambda: read_role_ref(document, change.namespace))
        _read_field(change, "subjects", lambda: read_subjects(document, change.namespace))
        if change.operation == UPDATE and ref != read_role_ref(old, change.namespace):
            problem = invalid(ROOT.child("roleRef"), document["roleRef"], "cannot change roleRef")
            raise invalid_object(change.kind, change.name, [problem])
        if document.get("subjects") == old.get("subjects") and change.operation == UPDATE:
            return
        plural = CLUSTER_ROLE.plural if ref.kind == CLUSTER_ROLE.name else ROLE.plural
        attributes = AccessAttributes("bind", GROUP, plural, "", change.namespace, ref.name)
        # A role that does not exist yet may come to contain anything.
        known = self._authorizer.rbac.has_role(ref)
        self._check_escalation(
            change, self._authorizer.rbac.get_role_rules(ref) if known else MASTER_RULES, attributes
        )

    def _check_escalation(self, change: ObjectChange, wanted: Any, attributes: AccessAttributes) -> None:
        user = change.request.user
        if not wanted or MASTERS in user.groups or self._authorizer.allows(user, attributes):
            return
        missing = find_uncovered(wanted, self._authorizer.rbac.list_user_rules(user, change.namespace))
        if missing:
            shown = ", ".join(write_json(piece.to_document()).decode() for piece in missing[:_MAX_SHOWN])
            more = f" and {len(missing) - _MAX_SHOWN} more" if len(missing) > _MAX_SHOWN else ""
            why = (
                f'user "{user.name}" is attempting to grant RBAC permissions not currently held: '
                f'{shown}{more}; the verb "{attributes.verb}" on {attributes.resource} '
                f'"{attributes.name}" would allow it'
            )
            raise new_forbidden(change.kind, change.name, why)


def _read_labels(document: Any) -> Any:
    return document["metadata"].get("labels") or {}


def _read_field(change: ObjectChange, field: str, reader: Any) -> Any:
    try:
        return reader()
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        value = (change.document or {}).get(field)
        problem: FieldError = invalid(ROOT.child(field), value, _describe_error(error))
        raise invalid_object(change.kind, change.name, [problem]) from None


def _describe_error(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"`{error.args[0]}` is missing"
    return str(error) if isinstance(error, ValueError) else "has not the form of this field"

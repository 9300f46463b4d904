"""RBAC: authorization by roles and bindings.

Theory of operation: the authorizer follows roles, cluster roles and their bindings through the cache.
Bindings are indexed by scope (a namespace, or the cluster) and by subject, so a decision looks only at roles
that are bound to the user or one of the user's groups. An aggregated cluster role has the rules of all
cluster roles its selectors match, computed on first use. Decisions are cached until any role or binding
changes. What no rule allows is refused.

A role or binding that cannot be parsed allows nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dray.api.json_text import write_json
from dray.api.kinds import get_kind
from dray.server.auth.authn.service_account_tokens import SERVICE_ACCOUNT_PREFIX
from dray.server.auth.authz.policy_rules import (
    AccessAttributes,
    PolicyRule,
    build_missing_rule,
    format_refusal,
    read_rules,
)
from dray.server.http.errors import ApiStatusError
from dray.server.http.requests import MASTERS, RequestUser
from dray.server.objects.stored_object import StoredObject
from dray.server.watch.cache import WatchCache
from dray.values.cache_bounds import CacheBound
from dray.values.label_selectors import LabelSelectorError, ParsedLabelSelector

GROUP = "rbac.authorization.k8s.io"
DECISION_CACHE = CacheBound("authorization decisions", 20_000, "the server")

RbacSubject = tuple[str, str]
"""`User` or `Group`, and the name; a service account is a user."""


ROLE, CLUSTER_ROLE = get_kind(GROUP, "Role"), get_kind(GROUP, "ClusterRole")
ROLE_BINDING, CLUSTER_ROLE_BINDING = get_kind(GROUP, "RoleBinding"), get_kind(GROUP, "ClusterRoleBinding")


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """Whether access is allowed, and why; `hint` is the part of a refusal that names what is missing."""

    allowed: bool
    reason: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class RoleRules:
    """The rules of a role, or the selectors that match the cluster roles it aggregates."""

    rules: tuple[PolicyRule, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    selectors: tuple[ParsedLabelSelector, ...] | None = None


class RoleRef(NamedTuple):
    """The role of a binding: a cluster role, or a role of the binding's namespace."""

    kind: str
    namespace: str
    name: str


class RoleGrant(NamedTuple):
    """A binding: its subjects and its role."""

    kind: str
    name: str
    role: RoleRef
    subjects: tuple[RbacSubject, ...]


class RbacAuthorizer:
    """Authorizes requests by roles and bindings."""

    def __init__(self, cache: WatchCache) -> None:
        self._roles: dict[RoleRef, RoleRules] = {}
        self._grants_by_subject: dict[tuple[str, RbacSubject], dict[bytes, RoleGrant]] = {}
        self._grants_by_key: dict[bytes, tuple[str, RoleGrant]] = {}
        self._resolved_rules: dict[RoleRef, tuple[PolicyRule, ...]] = {}
        self._decisions: dict[tuple[str, tuple[str, ...], AccessAttributes], AccessDecision] = {}
        for kind in (ROLE, CLUSTER_ROLE):
            cache.add_listener(kind, self._on_role_change)
        for kind in (ROLE_BINDING, CLUSTER_ROLE_BINDING):
            cache.add_listener(kind, self._on_binding_change)

    def authorize(self, user: RequestUser, attributes: AccessAttributes) -> AccessDecision:
        """Decide whether the user may do it, with the reason."""
        verb, group, resource, subresource, namespace, name, path, _ = attributes
        # The right to all objects includes each of them: most decisions do not depend on the name.
        answer = self._get_decision(
            user, AccessAttributes(verb, group, resource, subresource, namespace, "", path)
        )
        if answer.allowed or not name:
            return answer
        return self._get_decision(
            user, AccessAttributes(verb, group, resource, subresource, namespace, name, path)
        )

    def _get_decision(self, user: RequestUser, attributes: AccessAttributes) -> AccessDecision:
        key = (user.name, user.groups, attributes)
        answer = self._decisions.get(key)
        if answer is None:
            answer = DECISION_CACHE.put(self._decisions, key, self._decide(user, attributes))
        return answer

    def list_user_rules(self, user: RequestUser, namespace: str) -> list[PolicyRule]:
        """List the rules of the user in a namespace and in the cluster."""
        if MASTERS in user.groups:
            return list(MASTER_RULES)
        found: dict[PolicyRule, None] = {}
        for scope, binding, subject in self._iter_grants(user, namespace):
            del subject
            for rule in self.get_role_rules(binding.role):
                if scope and rule.paths:
                    continue  # paths are cluster-scoped
                found[rule] = None
        return list(found)

    def get_role_rules(self, ref: RoleRef) -> tuple[PolicyRule, ...]:
        """Return the rules of a role, with those it aggregates."""
        rules = self._resolved_rules.get(ref)
        if rules is None:
            rules = self._resolved_rules[ref] = tuple(dict.fromkeys(self._collect_rules(ref)))
        return rules

    def has_role(self, ref: RoleRef) -> bool:
        """Return whether a role exists."""
        return ref in self._roles

    def _decide(self, user: RequestUser, attributes: AccessAttributes) -> AccessDecision:
        if MASTERS in user.groups:
            return AccessDecision(True, f'allowed by the group "{MASTERS}"')
        missing: dict[str, None] = {}
        for scope, binding, subject in self._iter_grants(user, attributes.namespace):
            if scope and not attributes.resource:
                continue
            if binding.role not in self._roles:
                missing[_explain_missing_role(binding)] = None
            if any(rule.allows(attributes) for rule in self.get_role_rules(binding.role)):
                return AccessDecision(True, _explain_grant(scope, binding, subject))
        hint = (
            ", ".join(missing)
            or f"a rule that would allow it: {write_json(build_missing_rule(attributes)).decode()}"
        )
        return AccessDecision(False, f"{format_refusal(user, attributes)}: RBAC: {hint}", f"RBAC: {hint}")

    def _iter_grants(self, user: RequestUser, namespace: str) -> Iterator[tuple[str, RoleGrant, RbacSubject]]:
        subjects: list[RbacSubject] = [("User", user.name), *(("Group", group) for group in user.groups)]
        for scope in ("", namespace) if namespace else ("",):
            for subject in subjects:
                for binding in self._grants_by_subject.get((scope, subject), {}).values():
                    yield scope, binding, subject

    def _collect_rules(self, ref: RoleRef, seen: frozenset[RoleRef] = frozenset()) -> Iterator[PolicyRule]:
        role = self._roles.get(ref)
        if role is None or ref in seen:
            return
        if role.selectors is None:
            yield from role.rules
            return
        for other, part in self._roles.items():
            if other.kind == CLUSTER_ROLE.name and _is_selected(role.selectors, part):
                yield from self._collect_rules(other, seen | {ref})

    def _on_role_change(self, old: StoredObject | None, new: StoredObject | None) -> None:
        stored = new or old
        assert stored is not None
        ref = RoleRef(stored.kind.name, stored.namespace, stored.name)
        if new is None:
            self._roles.pop(ref, None)
        else:
            self._roles[ref] = _read_or_default(read_role, new, RoleRules())
        self._resolved_rules.clear()
        self._decisions.clear()

    def _on_binding_change(self, old: StoredObject | None, new: StoredObject | None) -> None:
        stored = new or old
        assert stored is not None
        scope, before = self._grants_by_key.pop(stored.key, (stored.namespace, None))
        for subject in before.subjects if before else ():
            granted = self._grants_by_subject.get((scope, subject), {})  # a binding may name a subject twice
            granted.pop(stored.key, None)
            if not granted:
                self._grants_by_subject.pop((scope, subject), None)
        after = None if new is None else _read_or_default(read_binding, new, None)
        if after is not None:
            self._grants_by_key[stored.key] = (scope, after)
            for subject in after.subjects:
                self._grants_by_subject.setdefault((scope, subject), {})[stored.key] = after
        self._decisions.clear()


MASTER_RULES = (
    PolicyRule(frozenset({"*"}), frozenset({"*"}), frozenset({"*"})),
    PolicyRule(frozenset({"*"}), paths=("*",)),
)


def build_forbidden(attributes: AccessAttributes, decision: AccessDecision) -> ApiStatusError:
    """Build the 403 of a refusal."""
    if not attributes.resource:
        return ApiStatusError(403, "Forbidden", f"forbidden: {decision.reason}", {})
    resource = f"{attributes.resource}.{attributes.group}" if attributes.group else attributes.resource
    subject = f'{resource} "{attributes.name}"' if attributes.name else resource
    details = {"name": attributes.name, "group": attributes.group, "kind": attributes.resource}
    message = f"{subject} is forbidden: {decision.reason}"
    return ApiStatusError(
        403, "Forbidden", message, {field: value for field, value in details.items() if value}
    )


def _is_selected(selectors: Sequence[ParsedLabelSelector], part: RoleRules) -> bool:
    labels = dict(part.labels)
    return any(selector.matches(labels) for selector in selectors)


# --- parsing ---


def _read_or_default(reader: Callable[[StoredObject], Any], stored: StoredObject, default: Any) -> Any:
    try:
        return reader(stored)
    except (ValueError, TypeError, AttributeError, KeyError):
        return default


def read_role(stored: StoredObject) -> RoleRules:
    """Parse a stored role."""
    document = stored.document
    labels = tuple(sorted((document["metadata"].get("labels") or {}).items()))
    return RoleRules(read_rules(document.get("rules")), labels, read_selectors(document))


def read_selectors(document: Any) -> tuple[ParsedLabelSelector, ...] | None:
    """Parse the selectors of an aggregated cluster role; raises `ValueError`."""
    aggregation = document.get("aggregationRule")
    if not aggregation:
        return None
    try:
        return tuple(
            ParsedLabelSelector.from_document(one) for one in aggregation.get("clusterRoleSelectors") or ()
        )
    except LabelSelectorError as error:
        raise ValueError(str(error)) from None


def read_binding(stored: StoredObject) -> RoleGrant:
    """Parse a stored binding."""
    document, namespace = stored.document, stored.namespace
    ref = read_role_ref(document, namespace)
    return RoleGrant(stored.kind.name, stored.name, ref, read_subjects(document, namespace))


def read_subjects(document: Any, namespace: str) -> tuple[RbacSubject, ...]:
    """Parse the subjects of a binding; raises `ValueError` or `KeyError`."""
    return tuple(_parse_subject(subject, namespace) for subject in document.get("subjects") or ())


def read_role_ref(document: Any, namespace: str) -> RoleRef:
    """Parse the role of a binding; raises `ValueError`."""
    ref = document.get("roleRef") or {}
    kind, name = ref.get("kind"), ref.get("name")
    if (ref.get("apiGroup") or GROUP) != GROUP or kind not in (ROLE.name, CLUSTER_ROLE.name) or not name:
        raise ValueError("a binding names a Role or ClusterRole in `roleRef`")
    if kind == CLUSTER_ROLE.name:
        return RoleRef(kind, "", name)
    if not namespace:
        raise ValueError("a ClusterRoleBinding can only give a ClusterRole")
    return RoleRef(kind, namespace, name)


def _parse_subject(document: Any, namespace: str) -> RbacSubject:
    kind, name = document["kind"], document["name"]
    if kind == "ServiceAccount":
        return ("User", f"{SERVICE_ACCOUNT_PREFIX}{document.get('namespace') or namespace}:{name}")
    if kind not in ("User", "Group") or not isinstance(name, str) or not name:
        raise ValueError("a subject is a User, a Group or a ServiceAccount with a name")
    return (kind, name)


def _explain_grant(scope: str, binding: RoleGrant, subject: RbacSubject) -> str:
    place = f"{scope}/{binding.name}" if scope else binding.name
    return (
        f'RBAC: allowed by {binding.kind} "{place}" of {binding.role.kind} "{binding.role.name}" '
        f'to {subject[0]} "{subject[1]}"'
    )


def _explain_missing_role(binding: RoleGrant) -> str:
    return f'{binding.role.kind.lower()}.{GROUP} "{binding.role.name}" not found'

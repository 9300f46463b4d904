"""Roles and bindings: who may do what.

Theory of operation: roles, cluster roles and their bindings are followed through the cache. Bindings are
indexed by where they count (a namespace, or everywhere) and by whom they name, so a question looks only at
roles that are bound to the user or one of the user's groups. A cluster role that is put together from others
has the rules of all cluster roles its selectors find, worked out when first asked. Answers are remembered
until anything among roles and bindings changes. What no rule allows is refused.

Rules for this file: a role or binding that cannot be read allows nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dray.api.json_text import write_json
from dray.api.kinds import known_kind
from dray.server.auth.authn.service_account_tokens import ACCOUNT_PREFIX
from dray.server.auth.authz.policy_rules import Asked, PolicyRule, missing_rule, read_rules, refusal_text
from dray.server.http.errors import Failure
from dray.server.http.requests import MASTERS, User
from dray.server.objects.stored_object import Held
from dray.server.watch.cache import Cache
from dray.values.cache_bounds import Bound
from dray.values.label_selectors import LabelSelector, LabelSelectorError

GROUP = "rbac.authorization.k8s.io"
ANSWERS = Bound("answers about rights", 20_000, "the server")

Subject = tuple[str, str]
"""`User` or `Group`, and the name; a service account is a user."""


ROLE, CLUSTER_ROLE = known_kind(GROUP, "Role"), known_kind(GROUP, "ClusterRole")
ROLE_BINDING, CLUSTER_ROLE_BINDING = known_kind(GROUP, "RoleBinding"), known_kind(GROUP, "ClusterRoleBinding")


@dataclass(frozen=True, slots=True)
class Decision:
    """Yes or no, and why; `hint` is the part of a refusal that says what is missing."""

    allowed: bool
    reason: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Role:
    """The rules of a role, or the selectors that find the cluster roles whose rules it has."""

    rules: tuple[PolicyRule, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    selectors: tuple[LabelSelector, ...] | None = None


class RoleRef(NamedTuple):
    """Which role a binding gives: a cluster role, or a role of the binding's namespace."""

    kind: str
    namespace: str
    name: str


class Binding(NamedTuple):
    """Who has which role."""

    kind: str
    name: str
    role: RoleRef
    subjects: tuple[Subject, ...]


class Authorizer:
    """Answers who may do what, from the roles and bindings there are."""

    def __init__(self, cache: Cache) -> None:
        self._roles: dict[RoleRef, Role] = {}
        self._bindings: dict[tuple[str, Subject], dict[bytes, Binding]] = {}
        self._bound: dict[bytes, tuple[str, Binding]] = {}
        self._whole: dict[RoleRef, tuple[PolicyRule, ...]] = {}
        self._answers: dict[tuple[str, tuple[str, ...], Asked], Decision] = {}
        for kind in (ROLE, CLUSTER_ROLE):
            cache.listen(kind, self._role_changed)
        for kind in (ROLE_BINDING, CLUSTER_ROLE_BINDING):
            cache.listen(kind, self._binding_changed)

    def decide(self, user: User, asked: Asked) -> Decision:
        """Whether the user may do it, and why."""
        verb, group, resource, subresource, namespace, name, path, _ = asked
        # Who may do it to all objects may do it to each: most answers do not depend on the name.
        answer = self._answer(user, Asked(verb, group, resource, subresource, namespace, "", path))
        if answer.allowed or not name:
            return answer
        return self._answer(user, Asked(verb, group, resource, subresource, namespace, name, path))

    def _answer(self, user: User, asked: Asked) -> Decision:
        key = (user.name, user.groups, asked)
        answer = self._answers.get(key)
        if answer is None:
            answer = ANSWERS.keep(self._answers, key, self._decided(user, asked))
        return answer

    def rules_for(self, user: User, namespace: str) -> list[PolicyRule]:
        """Everything the user may do in a namespace and outside of all."""
        if MASTERS in user.groups:
            return list(MASTER_RULES)
        found: dict[PolicyRule, None] = {}
        for scope, binding, subject in self._bindings_of(user, namespace):
            del subject
            for rule in self.rules_of(binding.role):
                if scope and rule.paths:
                    continue  # paths are outside of all namespaces
                found[rule] = None
        return list(found)

    def rules_of(self, ref: RoleRef) -> tuple[PolicyRule, ...]:
        """The rules of a role, with those of roles it is put together from."""
        rules = self._whole.get(ref)
        if rules is None:
            rules = self._whole[ref] = tuple(dict.fromkeys(self._gathered(ref)))
        return rules

    def knows(self, ref: RoleRef) -> bool:
        """Whether there is such a role."""
        return ref in self._roles

    def _decided(self, user: User, asked: Asked) -> Decision:
        if MASTERS in user.groups:
            return Decision(True, f'allowed by the group "{MASTERS}"')
        missing: dict[str, None] = {}
        for scope, binding, subject in self._bindings_of(user, asked.namespace):
            if scope and not asked.resource:
                continue
            if binding.role not in self._roles:
                missing[_not_there(binding)] = None
            if any(rule.allows(asked) for rule in self.rules_of(binding.role)):
                return Decision(True, _granted(scope, binding, subject))
        hint = ", ".join(missing) or f"a rule that would allow it: {write_json(missing_rule(asked)).decode()}"
        return Decision(False, f"{refusal_text(user, asked)}: RBAC: {hint}", f"RBAC: {hint}")

    def _bindings_of(self, user: User, namespace: str) -> Iterator[tuple[str, Binding, Subject]]:
        subjects: list[Subject] = [("User", user.name), *(("Group", group) for group in user.groups)]
        for scope in ("", namespace) if namespace else ("",):
            for subject in subjects:
                for binding in self._bindings.get((scope, subject), {}).values():
                    yield scope, binding, subject

    def _gathered(self, ref: RoleRef, seen: frozenset[RoleRef] = frozenset()) -> Iterator[PolicyRule]:
        role = self._roles.get(ref)
        if role is None or ref in seen:
            return
        if role.selectors is None:
            yield from role.rules
            return
        for other, part in self._roles.items():
            if other.kind == CLUSTER_ROLE.name and _selects(role.selectors, part):
                yield from self._gathered(other, seen | {ref})

    def _role_changed(self, old: Held | None, new: Held | None) -> None:
        held = new or old
        assert held is not None
        ref = RoleRef(held.kind.name, held.namespace, held.name)
        if new is None:
            self._roles.pop(ref, None)
        else:
            self._roles[ref] = _read(read_role, new, Role())
        self._whole.clear()
        self._answers.clear()

    def _binding_changed(self, old: Held | None, new: Held | None) -> None:
        held = new or old
        assert held is not None
        scope, before = self._bound.pop(held.key, (held.namespace, None))
        for subject in before.subjects if before else ():
            granted = self._bindings.get((scope, subject), {})  # a subject may be named twice
            granted.pop(held.key, None)
            if not granted:
                self._bindings.pop((scope, subject), None)
        after = None if new is None else _read(read_binding, new, None)
        if after is not None:
            self._bound[held.key] = (scope, after)
            for subject in after.subjects:
                self._bindings.setdefault((scope, subject), {})[held.key] = after
        self._answers.clear()


MASTER_RULES = (
    PolicyRule(frozenset({"*"}), frozenset({"*"}), frozenset({"*"})),
    PolicyRule(frozenset({"*"}), paths=("*",)),
)


def refusal(asked: Asked, decision: Decision) -> Failure:
    """The answer to somebody who may not."""
    if not asked.resource:
        return Failure(403, "Forbidden", f"forbidden: {decision.reason}", {})
    resource = f"{asked.resource}.{asked.group}" if asked.group else asked.resource
    subject = f'{resource} "{asked.name}"' if asked.name else resource
    details = {"name": asked.name, "group": asked.group, "kind": asked.resource}
    message = f"{subject} is forbidden: {decision.reason}"
    return Failure(403, "Forbidden", message, {field: value for field, value in details.items() if value})


def _selects(selectors: Sequence[LabelSelector], part: Role) -> bool:
    labels = dict(part.labels)
    return any(selector.matches(labels) for selector in selectors)


# --- as they are written ---


def _read(reader: Callable[[Held], Any], held: Held, nothing: Any) -> Any:
    try:
        return reader(held)
    except (ValueError, TypeError, AttributeError, KeyError):
        return nothing


def read_role(held: Held) -> Role:
    """A role of the store."""
    document = held.document
    labels = tuple(sorted((document["metadata"].get("labels") or {}).items()))
    return Role(read_rules(document.get("rules")), labels, read_selectors(document))


def read_selectors(document: Any) -> tuple[LabelSelector, ...] | None:
    """The selectors of a cluster role that is put together from others; a `ValueError` if they are none."""
    aggregation = document.get("aggregationRule")
    if not aggregation:
        return None
    try:
        return tuple(LabelSelector.read(one) for one in aggregation.get("clusterRoleSelectors") or ())
    except LabelSelectorError as error:
        raise ValueError(str(error)) from None


def read_binding(held: Held) -> Binding:
    """A binding of the store."""
    document, namespace = held.document, held.namespace
    ref = role_ref(document, namespace)
    return Binding(held.kind.name, held.name, ref, read_subjects(document, namespace))


def read_subjects(document: Any, namespace: str) -> tuple[Subject, ...]:
    """Whom a binding names; a `ValueError` or `KeyError` if they are none."""
    return tuple(_subject(subject, namespace) for subject in document.get("subjects") or ())


def role_ref(document: Any, namespace: str) -> RoleRef:
    """The role a binding gives; a `ValueError` if it names none."""
    ref = document.get("roleRef") or {}
    kind, name = ref.get("kind"), ref.get("name")
    if (
        ref.get("apiGroup", GROUP) not in (GROUP, "")
        or kind not in (ROLE.name, CLUSTER_ROLE.name)
        or not name
    ):
        raise ValueError("a binding names a Role or ClusterRole in `roleRef`")
    if kind == CLUSTER_ROLE.name:
        return RoleRef(kind, "", name)
    if not namespace:
        raise ValueError("a ClusterRoleBinding can only give a ClusterRole")
    return RoleRef(kind, namespace, name)


def _subject(written: Any, namespace: str) -> Subject:
    kind, name = written["kind"], written["name"]
    if kind == "ServiceAccount":
        return ("User", f"{ACCOUNT_PREFIX}{written.get('namespace') or namespace}:{name}")
    if kind not in ("User", "Group") or not isinstance(name, str) or not name:
        raise ValueError("a subject is a User, a Group or a ServiceAccount with a name")
    return (kind, name)


def _granted(scope: str, binding: Binding, subject: Subject) -> str:
    place = f"{scope}/{binding.name}" if scope else binding.name
    return (
        f'RBAC: allowed by {binding.kind} "{place}" of {binding.role.kind} "{binding.role.name}" '
        f'to {subject[0]} "{subject[1]}"'
    )


def _not_there(binding: Binding) -> str:
    return f'{binding.role.kind.lower()}.{GROUP} "{binding.role.name}" not found'

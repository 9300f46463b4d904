"""Policy rules: the attributes of a request, whether a rule allows it, and whether one rule covers another.

Theory of operation: a rule is a set of groups, resources and verbs, all combinations of which it allows,
maybe only for some names; or a set of paths. `*` matches everything in its position. A request is one verb on
one thing. A rule covers another when it allows every request that the other allows; to check that, the other
is split into pieces with one value in each position.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from dray.server.http.requests import ApiCall, RequestUser

WILDCARD = "*"

_NAME_SELECTOR = "metadata.name="
_COLLECTION_VERBS = frozenset({"list", "watch", "deletecollection"})
"""Verbs for which a selector has a meaning."""


class AccessAttributes(NamedTuple):
    """One verb on one thing: a resource, or a path that is none (`resource` is empty then)."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    selector: str = ""
    """The field selector of a list or watch; nodes may see some lists only in part."""

    @property
    def qualified_resource(self) -> str:
        """`pods` or `pods/status`, as rules name it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def build_attributes(call: ApiCall) -> AccessAttributes:
    """Return the attributes of a call. A selector for one name counts as the name."""
    if not call.is_resource:
        return AccessAttributes(call.verb, path=call.path)
    selector = call.query.get("fieldSelector", "")
    name = call.name
    if call.verb in _COLLECTION_VERBS and selector.startswith(_NAME_SELECTOR) and "," not in selector:
        name = selector.removeprefix(_NAME_SELECTOR).removeprefix("=")
    namespace = call.namespace
    if call.verb == "get" and call.plural == "namespaces" and not call.group:
        namespace = call.name  # rights in a namespace include reading the namespace
    return AccessAttributes(
        call.verb, call.group, call.plural, call.subresource, namespace, name, selector=selector
    )


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One rule of a role."""

    verbs: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()

    def allows(self, attributes: AccessAttributes) -> bool:
        """Return whether the rule allows the request."""
        if attributes.verb not in self.verbs and WILDCARD not in self.verbs:
            return False
        if not attributes.resource:
            return any(_matches_path(path, attributes.path) for path in self.paths)
        if attributes.group not in self.groups and WILDCARD not in self.groups:
            return False
        if self.names and attributes.name not in self.names:
            return False
        return self._matches_resource(attributes)

    def _matches_resource(self, attributes: AccessAttributes) -> bool:
        resources = self.resources
        if WILDCARD in resources or attributes.qualified_resource in resources:
            return True
        return bool(attributes.subresource) and f"*/{attributes.subresource}" in resources

    def to_document(self) -> dict[str, Any]:
        """Return the rule as a role has it."""
        fields = {
            "verbs": sorted(self.verbs),
            "apiGroups": sorted(self.groups),
            "resources": sorted(self.resources),
            "resourceNames": sorted(self.names),
            "nonResourceURLs": list(self.paths),
        }
        return {field: values for field, values in fields.items() if values}


def _matches_path(pattern: str, path: str) -> bool:
    if pattern.endswith(WILDCARD):
        return path.startswith(pattern[:-1])
    return pattern == path


# --- parsing ---


class _Rule(msgspec.Struct, frozen=True, rename="camel"):
    verbs: list[str] = []
    api_groups: list[str] | None = None
    resources: list[str] | None = None
    resource_names: list[str] | None = None
    non_resource_urls: list[str] | None = msgspec.field(default=None, name="nonResourceURLs")


def read_rules(documents: Any) -> tuple[PolicyRule, ...]:
    """Parse the rules of a role; raises a `ValueError` that names the position."""
    try:
        rules = msgspec.convert(documents or [], list[_Rule])
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    return tuple(
        PolicyRule(
            frozenset(rule.verbs),
            frozenset(rule.api_groups or ()),
            frozenset(rule.resources or ()),
            frozenset(rule.resource_names or ()),
            tuple(rule.non_resource_urls or ()),
        )
        for rule in rules
    )


# --- coverage ---


def find_uncovered(wanted: Iterable[PolicyRule], owned: Sequence[PolicyRule]) -> list[PolicyRule]:
    """List the pieces of the wanted rules that none of the owned rules allows."""
    return [piece for rule in wanted for piece in _split_rule(rule) if not _is_covered(piece, owned)]


def _split_rule(rule: PolicyRule) -> Iterator[PolicyRule]:
    for verb in sorted(rule.verbs):
        for path in rule.paths:
            yield PolicyRule(frozenset({verb}), paths=(path,))
        names: Sequence[str] = sorted(rule.names) or [""]
        for group, resource, name in itertools.product(sorted(rule.groups), sorted(rule.resources), names):
            yield PolicyRule(
                frozenset({verb}),
                frozenset({group}),
                frozenset({resource}),
                frozenset({name} if name else ()),
            )


def _is_covered(piece: PolicyRule, owned: Sequence[PolicyRule]) -> bool:
    return any(_covers(rule, piece) for rule in owned)


def _covers(rule: PolicyRule, piece: PolicyRule) -> bool:
    """Return whether the rule allows all that the piece allows; a piece has one value in each position."""
    if not _is_within(piece.verbs, rule.verbs):
        return False
    if piece.paths:
        return any(_is_path_within(piece.paths[0], path) for path in rule.paths)
    if not _is_within(piece.groups, rule.groups) or not _is_resource_within(piece, rule):
        return False
    return not rule.names or (bool(piece.names) and piece.names <= rule.names)


def _is_within(wanted: frozenset[str], owned: frozenset[str]) -> bool:
    return WILDCARD in owned or wanted <= owned


def _is_resource_within(piece: PolicyRule, rule: PolicyRule) -> bool:
    if _is_within(piece.resources, rule.resources):
        return True
    (wanted,) = piece.resources
    _, slash, subresource = wanted.partition("/")
    return bool(slash) and f"*/{subresource}" in rule.resources


def _is_path_within(wanted: str, owned: str) -> bool:
    if owned.endswith(WILDCARD):
        return wanted.removesuffix(WILDCARD).startswith(owned[:-1])
    return wanted == owned


# --- refusals ---


def format_refusal(user: RequestUser, attributes: AccessAttributes) -> str:
    """Explain a refusal, as Kubernetes words it."""
    if not attributes.resource:
        return f'User "{user.name}" cannot {attributes.verb} path "{attributes.path}"'
    where = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    what = f'resource "{attributes.qualified_resource}" in API group "{attributes.group}" {where}'
    return f'User "{user.name}" cannot {attributes.verb} {what}'


def build_missing_rule(attributes: AccessAttributes) -> Mapping[str, Any]:
    """Build the smallest rule that would allow the request."""
    if not attributes.resource:
        return {"nonResourceURLs": [attributes.path], "verbs": [attributes.verb]}
    return {
        "apiGroups": [attributes.group],
        "resources": [attributes.qualified_resource],
        "verbs": [attributes.verb],
    }


def parse_rule(text: str) -> PolicyRule:
    """Parse a rule in the short form."""
    verbs, _, what = text.partition(": ")
    what, _, names = what.partition("[")
    places = what.split()
    paths = tuple(place for place in places if place.startswith("/"))
    split = [parse_resource(place) for place in places if not place.startswith("/")]
    return PolicyRule(
        frozenset(verbs.split(",")),
        frozenset(group for group, _ in split),
        frozenset(resource for _, resource in split),
        frozenset(names.rstrip("] ").split()),
        paths,
    )


def parse_resource(text: str) -> tuple[str, str]:
    """Parse `resourceclaims.resource.k8s.io/status` to the group and `resourceclaims/status`."""
    whole, slash, subresource = text.partition("/")
    resource, _, group = whole.partition(".")
    return group, f"{resource}/{subresource}" if slash else resource

"""The rules that explain why dray answers some requests differently."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.mutations.comparison import Difference, Rule

_OWN_WARNINGS = (
    "quotas with scopes limit nothing here",
    "this server does not know where service",
    "the webhook has no rules",
    "the claim asks for nothing",
    "the slice has neither devices nor shared counters",
    "a rule without a selector selects no device",
    "devices published now",
    "the selector is empty",
)
_STRICTER_CAUSES = (
    "count",
    "capacity.requests",
    "capacity.requests[memory]",
    "constraints[0]",
    "counters[a].value",
    "value",
    "requestPolicy",
    "requestPolicy.default",
)


def _ends_with(difference: Difference, endings: Sequence[str]) -> bool:
    return difference.case.id.endswith(tuple(endings))


def _has_own_warnings(difference: Difference) -> bool:
    upstream, ours = difference.upstream, difference.ours
    kept = tuple(text for text in ours.warnings if not any(own in text for own in _OWN_WARNINGS))
    return kept != ours.warnings and (upstream.code, upstream.causes, upstream.warnings) == (
        ours.code,
        ours.causes,
        kept,
    )


def _is_upstream_fault(difference: Difference) -> bool:
    return difference.upstream.code == 500 and difference.ours.code < 500


def _is_stored_without_rules(difference: Difference) -> bool:
    upstream, ours = difference.upstream, difference.ours
    return (
        difference.case.base.depth == "stored"
        and upstream.code == 422
        and (ours.code < 300 or (ours.code == 422 and set(ours.causes) < set(upstream.causes)))
    )


def _is_stricter_device_rule(difference: Difference) -> bool:
    kind = difference.case.base.kind
    added = set(difference.ours.causes) - set(difference.upstream.causes)
    return (
        kind in ("ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
        and difference.ours.code == 422
        and bool(added)
        and all(field.endswith(_STRICTER_CAUSES) for _, field in added)
    )


def _is_admin_field(difference: Difference) -> bool:
    sides = (difference.upstream.causes, difference.ours.causes)
    return all(len(causes) == 1 and causes[0][1].endswith("adminAccess") for causes in sides)


def _is_internal_path(difference: Difference) -> bool:
    renamed = {(kind, field.replace(".exactly.", ".")) for kind, field in difference.upstream.causes}
    return "v1beta1" in difference.case.base.name and renamed == {
        (kind, field.replace(".exactly.", ".")) for kind, field in difference.ours.causes
    }


def _is_review_version(difference: Difference) -> bool:
    added = set(difference.ours.causes) - set(difference.upstream.causes)
    return bool(added) and all(field.endswith("admissionReviewVersions") for _, field in added)


def _match_ids(*endings: str) -> Callable[[Difference], bool]:
    return lambda difference: _ends_with(difference, endings)


RULES: tuple[Rule, ...] = (
    Rule(
        "own-warnings",
        "dray also warns about what has no effect here, or is likely a mistake",
        _has_own_warnings,
    ),
    Rule(
        "no-fault",
        "Kubernetes answers 500 to some wrong requests; dray says what is wrong with them, or does what the "
        "same request does in another form",
        _is_upstream_fault,
    ),
    Rule(
        "stored-only",
        "dray stores objects of kinds it does not interpret without validating their spec",
        _is_stored_without_rules,
    ),
    Rule(
        "stricter",
        "amounts that are negative or missing, counts beyond 32 bits, constraints with both attributes, and "
        "policies that do not fit are refused (decision 0006)",
        _is_stricter_device_rule,
    ),
    Rule(
        "admin-field",
        "the field that asks for admin access is named by its full path; Kubernetes leaves parts of it out",
        _is_admin_field,
    ),
    Rule(
        "path-of-version",
        "dray names fields as the client wrote them; Kubernetes names some of v1beta1 as v1 does",
        _is_internal_path,
    ),
    Rule("review-version", "dray sends webhooks reviews of v1 and no other version", _is_review_version),
    Rule(
        "json-patch",
        "`replace` and `copy` of what does not exist fail, as RFC 6902 says; Kubernetes adds the field",
        _match_ids("JSON patch replaces what is missing", "JSON patch copies what is missing"),
    ),
    Rule(
        "malformed-directive",
        "a directive of a strategic patch that is no list is refused; Kubernetes ignores it",
        _match_ids("strategic patch deletes from a list as text"),
    ),
    Rule(
        "null-body",
        "a body `null` is no object; Kubernetes takes it for an empty one",
        _match_ids("create with null as body"),
    ),
    Rule(
        "surrogate",
        "half of a surrogate pair is no text; Kubernetes replaces it by another character",
        _match_ids("create with surrogate alone"),
    ),
    Rule(
        "generation",
        "only the server writes `generation`; Kubernetes stores what a client sends for some kinds",
        _match_ids("create/metadata: generation negative"),
    ),
    Rule(
        "event-names",
        "names of events are checked as those of other objects; Kubernetes takes any through the core group",
        lambda difference: (
            difference.case.base.kind == "Event"
            and difference.ours.code == 422
            and all(
                field.startswith("metadata.")
                for _, field in set(difference.ours.causes) - set(difference.upstream.causes)
            )
        ),
    ),
    Rule(
        "null-in-role",
        "`null` in a list of a role is refused; Kubernetes reads it as an empty text",
        lambda difference: (
            difference.case.base.kind in ("Role", "ClusterRole")
            and difference.ours.causes == (("FieldValueInvalid", "rules"),)
        ),
    ),
    Rule(
        "extended-resource",
        "dray has no extended resources that are devices (`extendedResourceName` of a class)",
        lambda difference: (
            "extended resource" in difference.case.id and difference.case.base.kind == "DeviceClass"
        ),
    ),
    Rule(
        "service-name",
        "a webhook without the name of its service is told so; Kubernetes names the namespace",
        lambda difference: (
            "clientConfig.service" in str(difference.ours.causes)
            and difference.case.id.endswith(("service.name: empty", "service without name"))
        ),
    ),
)

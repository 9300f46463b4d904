"""The rules that explain why dray answers some requests differently."""

from __future__ import annotations

import re
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
    "the pod waits for the claim and gets nothing from it",
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


def _differs_in_warnings(difference: Difference) -> bool:
    upstream, ours = difference.upstream, difference.ours
    return (upstream.code, upstream.causes) == (ours.code, ours.causes)


def _has_other_words(difference: Difference) -> bool:
    upstream, ours = difference.upstream.warnings, difference.ours.warnings
    return (
        _differs_in_warnings(difference)
        and len(upstream) == len(ours)
        and difference.case.id.startswith("pod/create/metadata: name ")
    )


def _has_hints(difference: Difference) -> bool:
    plain = tuple(text.partition("; did you mean")[0] for text in difference.ours.warnings)
    return _differs_in_warnings(difference) and plain == difference.upstream.warnings


def _lacks_warnings_of_message(difference: Difference) -> bool:
    verb = difference.case.id.split("/")[1]
    return (
        verb in ("binding", "eviction", "token")
        and _differs_in_warnings(difference)
        and not difference.ours.warnings
        and all(text.startswith("unknown field") for text in difference.upstream.warnings)
    )


def _is_deprecated_anyway(difference: Difference) -> bool:
    added = set(difference.ours.warnings) - set(difference.upstream.warnings)
    return (
        difference.ours.code in (400, 405)
        and _differs_in_warnings(difference)
        and all("is deprecated in v" in text for text in added)
    )


def _lacks_warning(text: str) -> Callable[[Difference], bool]:
    """Build the condition that only a warning of Kubernetes is absent."""

    def applies(difference: Difference) -> bool:
        absent = set(difference.upstream.warnings) - set(difference.ours.warnings)
        return _differs_in_warnings(difference) and bool(absent) and all(text in one for one in absent)

    return applies


def _is_upstream_fault(difference: Difference) -> bool:
    return difference.upstream.code == 500 and difference.ours.code < 500


def _is_stored_without_rules(difference: Difference) -> bool:
    upstream, ours = difference.upstream, difference.ours
    return (
        difference.case.base.depth == "stored"
        and upstream.code == 422
        and (ours.code < 300 or ours.code == 422)
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


def _names_empty_list(difference: Difference) -> bool:
    absent = set(difference.upstream.causes) - set(difference.ours.causes)
    return (
        difference.case.base.kind == "ResourceSlice"
        and len(absent) == 1
        and all((kind, f"{field}.strings") in difference.ours.causes for kind, field in absent)
    )


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
        "empty-list",
        "an attribute with an empty list is refused once, for the list; the validation of Kubernetes agrees, "
        "and kube-apiserver adds that a value is absent",
        _names_empty_list,
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
        "extended-resource",
        "dray has no extended resources that are devices (`extendedResourceName` of a class)",
        lambda difference: (
            "extended resource" in difference.case.id and difference.case.base.kind == "DeviceClass"
        ),
    ),
    Rule("other-words", "a warning about the name of a pod has words of our own", _has_other_words),
    Rule("hints", "a warning about an unknown field names the one that was meant", _has_hints),
    Rule(
        "message-warnings",
        "unknown fields of bodies that are not stored (bindings, evictions, token requests) are dropped "
        "without a warning",
        _lacks_warnings_of_message,
    ),
    Rule(
        "deprecated-anyway",
        "a deprecated version is named also when the request is refused before it is looked at",
        _is_deprecated_anyway,
    ),
    Rule(
        "repeated-keys",
        "of a key that an applied configuration has twice the last one counts, without a warning",
        lambda difference: (
            _differs_in_warnings(difference) and difference.case.id.endswith("patch/apply a key twice")
        ),
    ),
    Rule(
        "owner-twice",
        "references to one owner that are written twice are stored; Kubernetes drops one and warns",
        _lacks_warning("ownerReferences contains duplicate entries"),
    ),
    Rule(
        "job-pods",
        "pods of a deleted Job are deleted in the background, as those of other owners; Kubernetes keeps "
        "them by default, and warns",
        _lacks_warning("child pods are preserved by default"),
    ),
    Rule("certificates", "dray does not look into certificates of secrets", _lacks_warning("tls: ")),
    Rule(
        "mountable-secrets",
        "dray does not know the annotation that limits the secrets of an account, and does not warn that "
        "it is deprecated",
        _lacks_warning("enforce-mountable-secrets"),
    ),
    Rule(
        "priority-of-slices",
        "slices have a priority (KEP-5773); the field is unknown to Kubernetes",
        _lacks_warning('unknown field "spec.priority"'),
    ),
    Rule(
        "plain-claims",
        "a claim of a container may be written as its name (decision 0006)",
        lambda difference: (
            difference.case.base.name == "pod-claims"
            and re.search(r"resources\.claims\[\d\]: text$", difference.case.id) is not None
        ),
    ),
    Rule(
        "runtime-class",
        "dray does not evaluate the runtime class of a pod",
        lambda difference: (
            difference.upstream.code == 403
            and difference.case.base.kind == "Pod"
            and _ends_with(
                difference, ("runtime class missing", "runtime class bad", "overhead without class")
            )
        ),
    ),
    Rule(
        "privileged",
        "privileged containers are allowed; kube-apiserver was started without `--allow-privileged`",
        lambda difference: (
            ("FieldValueForbidden", "spec.containers[0].securityContext.privileged")
            in difference.upstream.causes
        ),
    ),
    Rule(
        "not-ready-taint",
        "Kubernetes taints a new node until it is ready; dray's scheduler reads the condition",
        lambda difference: difference.case.id == "node/patch/apply the object",
    ),
    Rule(
        "empty-policy",
        "an empty reinvocation policy is the default, as an absent one",
        lambda difference: difference.case.id.endswith("reinvocationPolicy: empty"),
    ),
    Rule(
        "finalizer-domain",
        "a finalizer without domain is refused in every kind but events; Kubernetes takes it in some more, "
        "and refuses it in events of `events.k8s.io`",
        _match_ids("adds a finalizer without domain", "finalizer without domain"),
    ),
    Rule(
        "limit-range-name",
        "a LimitRange needs a name; Kubernetes makes one up",
        lambda difference: difference.case.id == "limit-range/create/metadata: name empty",
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

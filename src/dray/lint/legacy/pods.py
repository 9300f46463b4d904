"""Repairs of pods written before Kubernetes 1.31 and in the first drafts, with what to write today."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dray.api.classic.resource_claim import ClassicClaimSpec
from dray.api.conversion.legacy_pods import normalize_pod
from dray.api.core.pod import CONTAINER_LISTS
from dray.api.decode_report import list_field_names
from dray.lint.findings import FieldFinding
from dray.lint.legacy.repairs import DocumentFields, Repair
from dray.manifests.writer import to_yaml_block

_CLASSIC_FIELDS = frozenset(list_field_names(ClassicClaimSpec))


def repair_pod(pod: DocumentFields) -> tuple[DocumentFields, list[Repair]]:
    """A pod without `source`, and the repairs that were needed."""
    repair = _repair_claim_source(pod)
    return (repair.document, [repair]) if repair else (pod, [])


def _repair_claim_source(pod: DocumentFields) -> Repair | None:
    entries = _list_claim_entries(pod)
    lifted = {
        i: {**{k: v for k, v in entry.items() if k != "source"}, **entry["source"]}
        for i, entry in entries
        if isinstance(entry.get("source"), Mapping)
    }
    if not lifted:
        return None
    first = min(lifted)
    whole = [lifted.get(i, entry) for i, entry in enumerate(pod["spec"]["resourceClaims"])]
    finding = FieldFinding(
        "old-claim-source",
        f"spec.resourceClaims[{first}].source",
        "`source` is gone since Kubernetes 1.31; its fields stand beside `name`",
        expected="`name` and one of `resourceClaimName`, `resourceClaimTemplateName`",
        rewrite=to_yaml_block({"resourceClaims": whole}),
        at_key=True,
    )
    indices = "|".join(map(str, lifted))
    back = (re.compile(rf"^(spec\.resourceClaims\[(?:{indices})\])\.(?!name\b)"), r"\1.source.")
    return Repair(finding, {**pod, "spec": {**pod["spec"], "resourceClaims": whole}}, back)


def check_spelling(pod: DocumentFields) -> Iterator[FieldFinding]:
    """Findings about accepted old spellings."""
    today = normalize_pod(pod)
    for i, entry in _list_claim_entries(pod):
        here = f"spec.resourceClaims[{i}]"
        template = entry.get("template")
        if isinstance(template, Mapping) and "spec" not in template and _CLASSIC_FIELDS & template.keys():
            yield FieldFinding(
                "old-inline-template",
                f"{here}.template",
                "the fields of an inline template stand under `spec`; read as if they did",
                expected="`template.spec`",
                rewrite=to_yaml_block([today["spec"]["resourceClaims"][i]]),
                at_key=True,
            )
    for name, i, claims in _iterate_container_claims(pod):
        here = f"spec.{name}[{i}].resources.claims"
        strings = [j for j, claim in enumerate(claims) if isinstance(claim, str)]
        if strings:
            rewritten = {"claims": today["spec"][name][i]["resources"]["claims"]}
            yield replace(
                _STRING_CLAIM_FINDING, path=f"{here}[{strings[0]}]", rewrite=to_yaml_block(rewritten)
            )


_STRING_CLAIM_FINDING = FieldFinding(
    "old-container-claims",
    "",
    "claims of a container are objects with a `name`; a plain string is read as the name",
    expected="`- name: ...`",
)


def _list_claim_entries(pod: DocumentFields) -> list[tuple[int, DocumentFields]]:
    spec = pod.get("spec")
    entries = spec.get("resourceClaims") if isinstance(spec, Mapping) else None
    if not isinstance(entries, list):
        return []
    return [(i, entry) for i, entry in enumerate(entries) if isinstance(entry, Mapping)]


def _iterate_container_claims(pod: DocumentFields) -> Iterator[tuple[str, int, list[Any]]]:
    spec = pod.get("spec")
    if not isinstance(spec, Mapping):
        return
    for name in CONTAINER_LISTS:
        containers = spec.get(name)
        for i, container in enumerate(containers if isinstance(containers, list) else ()):
            resources = container.get("resources") if isinstance(container, Mapping) else None
            claims = resources.get("claims") if isinstance(resources, Mapping) else None
            if isinstance(claims, list):
                yield name, i, claims

"""Pods as they were written before Kubernetes 1.31 and in the first drafts, with what to write today."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dray.api.classic.resource_claim import ClassicClaimSpec
from dray.api.conversion.legacy_pods import CONTAINER_LISTS, tidied
from dray.api.core import ContainerClaim, PodResourceClaim
from dray.api.decode_report import field_names
from dray.lint.findings import Complaint
from dray.lint.legacy.repairs import Fields, Repair
from dray.lint.suggestions import did_you_mean
from dray.manifests.writer import yaml_block

_CLASSIC = frozenset(field_names(ClassicClaimSpec))
_ENTRY = field_names(PodResourceClaim)
_CLAIM = field_names(ContainerClaim)


def repaired_pod(pod: Fields) -> tuple[Fields, list[Repair]]:
    """A pod without `source`, and what had to be repaired for it."""
    repair = _source(pod)
    return (repair.document, [repair]) if repair else (pod, [])


def _source(pod: Fields) -> Repair | None:
    entries = _entries(pod)
    lifted = {
        i: {**{k: v for k, v in entry.items() if k != "source"}, **entry["source"]}
        for i, entry in entries
        if isinstance(entry.get("source"), Mapping)
    }
    if not lifted:
        return None
    first = min(lifted)
    whole = [lifted.get(i, entry) for i, entry in enumerate(pod["spec"]["resourceClaims"])]
    complaint = Complaint(
        "old-claim-source",
        f"spec.resourceClaims[{first}].source",
        "`source` is gone since Kubernetes 1.31; its fields stand beside `name`",
        expected="`name` and one of `resourceClaimName`, `resourceClaimTemplateName`",
        rewrite=yaml_block({"resourceClaims": whole}),
        at_key=True,
    )
    indices = "|".join(map(str, lifted))
    back = (re.compile(rf"^(spec\.resourceClaims\[(?:{indices})\])\.(?!name\b)"), r"\1.source.")
    return Repair(complaint, {**pod, "spec": {**pod["spec"], "resourceClaims": whole}}, back)


def spelling(pod: Fields) -> Iterator[Complaint]:
    """What is accepted but written differently today, and fields that pods do not have."""
    today = tidied(pod)
    for i, entry in _entries(pod):
        here = f"spec.resourceClaims[{i}]"
        yield from _unknown(entry, _ENTRY, here)
        template = entry.get("template")
        if isinstance(template, Mapping) and "spec" not in template and _CLASSIC & template.keys():
            yield Complaint(
                "old-inline-template",
                f"{here}.template",
                "the fields of an inline template stand under `spec`; read as if they did",
                expected="`template.spec`",
                rewrite=yaml_block([today["spec"]["resourceClaims"][i]]),
                at_key=True,
            )
    for name, i, claims in _container_claims(pod):
        here = f"spec.{name}[{i}].resources.claims"
        for j, claim in enumerate(claims):
            if isinstance(claim, Mapping):
                yield from _unknown(claim, _CLAIM, f"{here}[{j}]")
        strings = [j for j, claim in enumerate(claims) if isinstance(claim, str)]
        if strings:
            rewritten = {"claims": today["spec"][name][i]["resources"]["claims"]}
            yield replace(_PLAIN_STRING, path=f"{here}[{strings[0]}]", rewrite=yaml_block(rewritten))


_PLAIN_STRING = Complaint(
    "old-container-claims",
    "",
    "claims of a container are objects with a `name`; a plain string is read as the name",
    expected="`- name: ...`",
)


def _unknown(fields: Fields, known: tuple[str, ...], path: str) -> Iterator[Complaint]:
    for name in fields:
        if name not in known:
            yield Complaint(
                "unknown-field",
                f"{path}.{name}",
                f"unknown field `{name}`",
                expected="one of " + ", ".join(f"`{field}`" for field in known),
                hint=did_you_mean(name, known),
                at_key=True,
            )


def _entries(pod: Fields) -> list[tuple[int, Fields]]:
    spec = pod.get("spec")
    entries = spec.get("resourceClaims") if isinstance(spec, Mapping) else None
    if not isinstance(entries, list):
        return []
    return [(i, entry) for i, entry in enumerate(entries) if isinstance(entry, Mapping)]


def _container_claims(pod: Fields) -> Iterator[tuple[str, int, list[Any]]]:
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

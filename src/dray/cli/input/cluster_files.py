"""A cluster from manifest files: the option `-f`, names of pods and claims, and messages about the input."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.api.strategies.gated_fields import FeatureGateFilter
from dray.claims.claim_names import NamespacedName
from dray.cli.exit_codes import EXIT_INVALID_INPUT
from dray.cli.input import manifest_files
from dray.cli.output.text import print_message
from dray.clock import SystemClock, format_timestamp
from dray.errors import InputError
from dray.gates import GateSet
from dray.manifests import ManifestDocument, ManifestSource, read_documents
from dray.simulation.bundle import Bundle, BundleError, build_bundle
from dray.simulation.file_placement import PlacedUnit, PlacementOutcome, build_inventory
from dray.simulation.invalid_objects import format_all_lines, to_documents
from dray.simulation.object_reader import format_names

F = TypeVar("F", bound=Callable[..., Any])

KIND_ALIASES = {
    **dict.fromkeys(("pod", "pods", "po"), "pod"),
    **dict.fromkeys(("claim", "claims", "resourceclaim", "resourceclaims"), "claim"),
}
"""The kinds that people write before the slash."""

_KIND_NAMES = {"pod": "Pod", "claim": "ResourceClaim"}

_MAX_WARNINGS = 20
"""Messages about dropped fields that are printed; JSON output has all of them."""

AMONG_MANIFESTS = "among the manifests"
"""Where objects are looked up, for messages."""


def files_option(command: F) -> F:
    """Add `-f`."""
    return click.option(
        "-f",
        "--filename",
        "paths",
        multiple=True,
        metavar="FILE|FOLDER|-",
        help="Manifests, folders of manifests, dumps of `kubectl get -o yaml`, or - for standard input; "
        "may be given several times.",
    )(command)


@dataclass(frozen=True, slots=True)
class ClusterInput:
    """A bundle of objects that feature gates admit, with its device inventory."""

    bundle: Bundle
    admission: AllocatorGateFilter
    inventory: DeviceInventory


def load_cluster(paths: Sequence[str], gates: GateSet, *, strict: bool) -> ClusterInput:
    """Read and validate files, print warnings; broken input ends the run, with every error on a line."""
    bundle = load_validated_bundle(paths, gates, strict=strict)
    admission = AllocatorGateFilter(gates)
    return ClusterInput(bundle, admission, build_inventory(bundle, admission))


def load_validated_bundle(paths: Sequence[str], gates: GateSet, *, strict: bool) -> Bundle:
    """Read the objects of files, validate them as an API server would, and print the findings."""
    bundle = load_bundle(paths, FeatureGateFilter(gates))
    for warning in bundle.warnings[:_MAX_WARNINGS]:
        print_message(warning)
    if len(bundle.warnings) > _MAX_WARNINGS:
        print_message(
            f"{len(bundle.warnings) - _MAX_WARNINGS} more objects lose fields to closed feature gates"
        )
    for line in format_all_lines(bundle.invalid):
        print_message(line)
    for remark in bundle.node_remarks:
        print_message(remark)
    if strict and bundle.invalid:
        count = len(bundle.invalid)
        raise InputError(f"{count} invalid object{'' if count == 1 else 's'}, and `--strict` allows none")
    return bundle


def load_bundle(paths: Sequence[str], gates: FeatureGateFilter | None = None) -> Bundle:
    """Read the objects of files; with gates, validate them as an API server would."""
    found = manifest_files.find_input_files(paths)
    try:
        bundle = build_bundle(_read_documents(found), now=format_timestamp(SystemClock().now()), gates=gates)
    except BundleError as broken:
        for problem in broken.problems:
            print_message(problem)
        raise click.exceptions.Exit(EXIT_INVALID_INPUT) from None
    for remark in bundle.remarks:
        print_message(remark)
    return bundle


def _read_documents(found: Sequence[manifest_files.InputFile]) -> Iterator[ManifestDocument]:
    for target in found:
        yield from read_documents(ManifestSource.decode(target.name, manifest_files.read_contents(target)))


def list_names(bundle: Bundle, kind: str) -> list[NamespacedName]:
    """List all objects of a kind by namespace and name."""
    objects = bundle.pods if kind == "pod" else bundle.claims
    return [(one.metadata.namespace, one.metadata.name) for one in objects]


def resolve_name(
    bundle: Bundle, kind: str, text: str, namespace: str | None = None, where: str = AMONG_MANIFESTS
) -> NamespacedName:
    """Find the pod or claim named `NAME` or `NAMESPACE/NAME`; raise `InputError` when there is none."""
    space, slash, name = text.rpartition("/")
    wanted = space if slash else namespace
    names = list_names(bundle, kind)
    found = [known for known in names if known[1] == name and wanted in (None, known[0])]
    for each in bundle.invalid:
        if each.name == name and each.kind == _KIND_NAMES[kind] and wanted in (None, each.namespace):
            raise InputError(f"{kind} `{each.full_name}` is {each}")
    if len(found) == 1:
        return found[0]
    full = f"{wanted}/{name}" if wanted else name
    if found:
        spaces = format_names(space for space, _ in found)
        raise InputError(
            f"{kind} `{name}` is in several namespaces: {spaces}; write `-n` or `NAMESPACE/NAME`"
        )
    others = format_names("/".join(known) for known in names) or "none"
    raise InputError(f"{kind} `{full}` is not {where}; those are {others}")


def check_node(bundle: Bundle, node: str | None, where: str = AMONG_MANIFESTS) -> None:
    """Raise `InputError` for a node that does not exist."""
    names = [known.metadata.name for known in bundle.nodes]
    if node is not None and node not in names:
        raise InputError(f"node `{node}` is not {where}; those are {format_names(names) or 'none'}")


def parse_subject(text: str) -> tuple[str, str] | None:
    """Parse `pod/NAME` into kind and name; None for any other text."""
    kind, slash, name = text.partition("/")
    if not slash or not name or kind.lower() not in KIND_ALIASES or os.path.exists(text):
        return None
    return KIND_ALIASES[kind.lower()], name


def is_everything_invalid(outcomes: Sequence[PlacementOutcome]) -> bool:
    """Whether everything that waits is invalid, so that nothing could be placed."""
    return bool(outcomes) and all(outcome.unit.invalid for outcome in outcomes)


def build_abort_document(outcome: PlacementOutcome) -> dict[str, Any]:
    """Build the document about an attempt that Kubernetes would abort and dray places."""
    abort = outcome.abort if isinstance(outcome, PlacedUnit) else None
    return {"kubernetesAborts": None if abort is None else {"certain": abort.certain, "why": abort.why}}


def build_validation_document(bundle: Bundle) -> dict[str, Any]:
    """Build the document of the findings about the input."""
    return {"invalid": to_documents(bundle.invalid), "warnings": list(bundle.warnings)}

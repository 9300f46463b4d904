"""A cluster from the command line: `-f`, the names of pods and claims, and what is said while reading."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from dray.allocator.feature_gates import Admission
from dray.allocator.inventory.device_inventory import Stock
from dray.api.strategies.gated_fields import Gatekeeper
from dray.claims.claim_names import Name
from dray.cli.app import BROKEN
from dray.cli.input import manifest_files
from dray.cli.output.text import clean
from dray.clock import SystemClock, timestamp
from dray.errors import InputError
from dray.gates import GateSet
from dray.manifests import Document, Source, read
from dray.simulation.bundle import Bundle, BundleError, gather
from dray.simulation.file_placement import Outcome, Placed, stock_of
from dray.simulation.invalid_objects import lines_of, to_documents
from dray.simulation.object_reader import listed

F = TypeVar("F", bound=Callable[..., Any])

KINDS = {
    **dict.fromkeys(("pod", "pods", "po"), "pod"),
    **dict.fromkeys(("claim", "claims", "resourceclaim", "resourceclaims"), "claim"),
}
"""What people write before the slash, and what they mean."""

_NAMES = {"pod": "Pod", "claim": "ResourceClaim"}

_MOST_WARNINGS = 20
"""Lines about dropped fields; machines get all of them."""

IN_FILES = "among the manifests"
"""Where objects are looked for, in words."""


def files_option(command: F) -> F:
    """`-f`."""
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
class Cluster:
    """A bundle behind its door, ready to be asked."""

    bundle: Bundle
    door: Admission
    stock: Stock


def cluster_of(paths: Sequence[str], gates: GateSet, *, strict: bool) -> Cluster:
    """Read everything, say what is worth saying; broken input ends the run, with every fault on a line."""
    bundle = judged_bundle(paths, gates, strict=strict)
    door = Admission(gates)
    return Cluster(bundle, door, stock_of(bundle, door))


def judged_bundle(paths: Sequence[str], gates: GateSet, *, strict: bool) -> Bundle:
    """The objects in some files, judged as an API server would, with everything said about them."""
    bundle = bundle_of(paths, Gatekeeper(gates))
    for warning in bundle.warnings[:_MOST_WARNINGS]:
        say(warning)
    if len(bundle.warnings) > _MOST_WARNINGS:
        say(f"{len(bundle.warnings) - _MOST_WARNINGS} more objects lose fields to closed feature gates")
    for line in lines_of(bundle.invalid):
        say(line)
    for remark in bundle.node_remarks:
        say(remark)
    if strict and bundle.invalid:
        count = len(bundle.invalid)
        raise InputError(f"{count} invalid object{'' if count == 1 else 's'}, and `--strict` allows none")
    return bundle


def bundle_of(paths: Sequence[str], gates: Gatekeeper | None = None) -> Bundle:
    """The objects in some files; with gates, judged as an API server would."""
    found = manifest_files.targets(paths)
    try:
        bundle = gather(_documents(found), now=timestamp(SystemClock().now()), gates=gates)
    except BundleError as broken:
        for problem in broken.problems:
            say(problem)
        raise click.exceptions.Exit(BROKEN) from None
    for remark in bundle.remarks:
        say(remark)
    return bundle


def _documents(found: Sequence[manifest_files.Target]) -> Iterator[Document]:
    for target in found:
        yield from read(Source.decode(target.name, manifest_files.contents(target)))


def say(text: str) -> None:
    """A line for people, beside the data."""
    click.echo(f"dray: {clean(text)}", err=True)


def names_of(bundle: Bundle, kind: str) -> list[Name]:
    """Everything of a kind, by namespace and name."""
    objects = bundle.pods if kind == "pod" else bundle.claims
    return [(one.metadata.namespace, one.metadata.name) for one in objects]


def resolved(
    bundle: Bundle, kind: str, text: str, namespace: str | None = None, where: str = IN_FILES
) -> Name:
    """The pod or claim meant by `NAME` or `NAMESPACE/NAME`; raises `InputError` when there is none."""
    space, slash, name = text.rpartition("/")
    wanted = space if slash else namespace
    names = names_of(bundle, kind)
    found = [known for known in names if known[1] == name and wanted in (None, known[0])]
    for each in bundle.invalid:
        if each.name == name and each.kind == _NAMES[kind] and wanted in (None, each.namespace):
            raise InputError(f"{kind} `{each.full_name}` is {each}")
    if len(found) == 1:
        return found[0]
    full = f"{wanted}/{name}" if wanted else name
    if found:
        spaces = listed(space for space, _ in found)
        raise InputError(
            f"{kind} `{name}` is in several namespaces: {spaces}; write `-n` or `NAMESPACE/NAME`"
        )
    others = listed("/".join(known) for known in names) or "none"
    raise InputError(f"{kind} `{full}` is not {where}; those are {others}")


def check_node(bundle: Bundle, node: str | None, where: str = IN_FILES) -> None:
    """Refuse a node that nobody knows."""
    names = [known.metadata.name for known in bundle.nodes]
    if node is not None and node not in names:
        raise InputError(f"node `{node}` is not {where}; those are {listed(names) or 'none'}")


def subject_named(text: str) -> tuple[str, str] | None:
    """`pod/NAME` as kind and name; None for a text that is no such thing."""
    kind, slash, name = text.partition("/")
    if not slash or not name or kind.lower() not in KINDS or os.path.exists(text):
        return None
    return KINDS[kind.lower()], name


def nothing_valid(outcomes: Sequence[Outcome]) -> bool:
    """Whether all that waits is invalid, so that nothing could be answered."""
    return bool(outcomes) and all(outcome.subject.invalid for outcome in outcomes)


def abort_document(outcome: Outcome) -> dict[str, Any]:
    """Whether Kubernetes would end the attempt for something that is placed here, for machines."""
    abort = outcome.abort if isinstance(outcome, Placed) else None
    return {"kubernetesAborts": None if abort is None else {"certain": abort.certain, "why": abort.why}}


def judgement(bundle: Bundle) -> dict[str, Any]:
    """What was said about the input, for machines."""
    return {"invalid": to_documents(bundle.invalid), "warnings": list(bundle.warnings)}

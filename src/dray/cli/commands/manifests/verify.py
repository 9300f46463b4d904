"""`dray verify`: check the allocations in claims again, with code that shares nothing with the allocator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.allocator.requests import format_claim_name
from dray.cli.exit_codes import EXIT_NO, EXIT_YES
from dray.cli.input.cluster_files import build_validation_document, files_option, load_validated_bundle
from dray.cli.input.options import gates_option, output_option, strict_option
from dray.cli.output.text import sanitize_text
from dray.gates import GateSet
from dray.manifests import to_json
from dray.simulation.allocation_audit import AuditedClaim, audit_bundle


@click.command("verify")
@files_option
@click.argument("more", nargs=-1, metavar="[FILES]...")
@output_option
@gates_option
@strict_option
def command(paths: tuple[str, ...], more: tuple[str, ...], output: str, gates: GateSet, strict: bool) -> int:
    """Verify the allocations of claims: devices exist, match and are allocated once, amounts add up.

    Every claim is checked against all others by code that shares nothing with the search. Objects are
    validated as an API server would: invalid ones are named and skipped, except that claims keep their
    devices. Exit code 0 when everything is correct, 1 when something is not, 2 when the input is invalid.
    """
    bundle = load_validated_bundle((*paths, *more), gates, strict=strict)
    audited = list(audit_bundle(bundle, AllocatorGateFilter(gates)))
    if output == "json":
        click.echo(to_json([{**_build_document(audited), **build_validation_document(bundle)}]), nl=False)
    else:
        _print_report(audited)
    return EXIT_NO if any(one.problems for one in audited) else EXIT_YES


def _print_report(audited: Sequence[AuditedClaim]) -> None:
    for one in audited:
        for text, rule in zip(one.problems, one.rules, strict=True):
            click.echo(sanitize_text(f"claim {format_claim_name(one.claim)}: {text} [{rule}]"))
    wrong = sum(bool(one.problems) for one in audited)
    checked = f"checked {len(audited)} allocation{'' if len(audited) == 1 else 's'}"
    click.echo(f"{checked}: {f'{wrong} with something wrong' if wrong else 'nothing wrong'}")


def _build_document(audited: Sequence[AuditedClaim]) -> dict[str, Any]:
    return {
        "claims": [
            {
                "claim": format_claim_name(one.claim),
                "node": one.node.metadata.name if one.node is not None else None,
                "findings": [
                    {"rule": rule, "text": text} for text, rule in zip(one.problems, one.rules, strict=True)
                ],
            }
            for one in audited
        ]
    }

"""`dray verify`: check the allocations in claims again, with code that shares nothing with the allocator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from dray.allocator.feature_gates import Admission
from dray.allocator.requests import named
from dray.cli.app import NO, YES
from dray.cli.input.cluster_files import files_option, judged_bundle, judgement
from dray.cli.input.options import gates_option, output_option, strict_option
from dray.cli.output.text import clean
from dray.gates import GateSet
from dray.manifests import as_json
from dray.simulation.allocation_audit import Audited, audit


@click.command("verify")
@files_option
@click.argument("more", nargs=-1, metavar="[FILES]...")
@output_option
@gates_option
@strict_option
def command(paths: tuple[str, ...], more: tuple[str, ...], output: str, gates: GateSet, strict: bool) -> int:
    """Check the allocations that claims have: devices exist, match and are held once, amounts add up.

    Every claim is judged against all others by a referee of its own, which knows the rules and nothing of the
    search. Objects are judged as an API server would: what is invalid is named and left out, except that
    claims keep their devices. Exit code 0 when all is well, 1 when something is not, 2 when the input is
    broken.
    """
    bundle = judged_bundle((*paths, *more), gates, strict=strict)
    audited = list(audit(bundle, Admission(gates)))
    if output == "json":
        click.echo(as_json([{**_document(audited), **judgement(bundle)}]), nl=False)
    else:
        _print(audited)
    return NO if any(one.complaints for one in audited) else YES


def _print(audited: Sequence[Audited]) -> None:
    for one in audited:
        for text, rule in zip(one.complaints, one.rules, strict=True):
            click.echo(clean(f"claim {named(one.claim)}: {text} [{rule}]"))
    wrong = sum(bool(one.complaints) for one in audited)
    checked = f"checked {len(audited)} allocation{'' if len(audited) == 1 else 's'}"
    click.echo(f"{checked}: {f'{wrong} with something wrong' if wrong else 'nothing wrong'}")


def _document(audited: Sequence[Audited]) -> dict[str, Any]:
    return {
        "claims": [
            {
                "claim": named(one.claim),
                "node": one.node.metadata.name if one.node is not None else None,
                "findings": [
                    {"rule": rule, "text": text} for text, rule in zip(one.complaints, one.rules, strict=True)
                ],
            }
            for one in audited
        ]
    }

"""`dray convert`: move manifests to another version of the API.

Theory of operation: everything is read and converted before anything is written, so that a fault in the last
file does not leave half a result. Documents are rewritten as documents, not through objects: fields that no
version knows stay where they are, and the order of keys is kept.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from dray.api.codec import decode_document
from dray.api.conversion import down, up
from dray.api.conversion.legacy_pods import tidied as tidied_pod
from dray.api.kinds import KINDS, Kind, split_api_version
from dray.cli.app import NO, YES
from dray.cli.input import manifest_files
from dray.cli.output.text import clean
from dray.errors import DecodeError
from dray.lint.document_kind import Known, Workload, identify
from dray.lint.legacy.pods import repaired_pod
from dray.lint.legacy.repairs import repaired
from dray.manifests import Document, Source, as_json, as_yaml, read
from dray.manifests.documents import below, implied_by, is_list
from dray.manifests.json_reader import looks_like_json
from dray.manifests.yaml_reader import has_comments

GROUP = "resource.k8s.io"
VERSIONS = tuple(dict.fromkeys(version for kind in KINDS if kind.group == GROUP for version in kind.versions))


class VersionType(click.ParamType[str]):
    """`v1` or `resource.k8s.io/v1`."""

    name = "version"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        group, version = split_api_version(value)
        if group in ("", GROUP) and version in VERSIONS:
            return version
        near = difflib.get_close_matches(version, VERSIONS, n=1)
        hint = f"; did you mean `{near[0]}`?" if near else ""
        served = ", ".join(f"`{known}`" for known in VERSIONS)
        raise click.UsageError(f"cannot convert to `{value}`; expected one of {served}{hint}", ctx)


@dataclass(frozen=True, slots=True)
class Converted:
    """One file: its documents as they were and as they are now, and what there is to say about it."""

    target: manifest_files.Target
    is_json: bool
    before: tuple[Any, ...]
    after: tuple[Any, ...]
    loses_comments: bool
    remarks: tuple[str, ...]
    faults: tuple[str, ...]

    @property
    def changed(self) -> bool:
        return self.before != self.after


@click.command("convert")
@click.argument("paths", nargs=-1, metavar="[FILES|FOLDERS|-]...")
@click.option("--to", "version", type=VersionType(), required=True, help=f"One of {', '.join(VERSIONS)}.")
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), help="Default: yaml; with --write, as it was."
)
@click.option(
    "--write", is_flag=True, help="Change the files themselves; those that need no change stay as they are."
)
def command(paths: tuple[str, ...], version: str, output: str | None, write: bool) -> int:
    """Move the objects of resource.k8s.io in manifests to another version of the API.

    Other objects are passed through unchanged; pods get today's spelling of their claims when the version
    is v1. Lists stay lists and files with many documents stay so. Comments are lost, and said to be.
    """
    found = manifest_files.targets(paths)
    if write and any(target.path is None for target in found):
        raise click.UsageError("`--write` cannot write back to standard input; name files")
    converted = [_converted(target, version) for target in found]
    for one in converted:
        _talk(one, write)
    if any(one.faults for one in converted):
        _say("nothing was written, because of the errors above")
        return NO
    if write:
        return _write(converted, output)
    click.echo(_text([document for one in converted for document in one.after], output or "yaml"), nl=False)
    return YES


def _converted(target: manifest_files.Target, version: str) -> Converted:
    source = Source.decode(target.name, manifest_files.contents(target))
    documents = list(read(source))
    remarks: list[str] = []
    faults: list[str] = []
    after = tuple(_document(document, version, remarks, faults) for document in documents)
    before = tuple(document.value for document in documents)
    return Converted(
        target,
        looks_like_json(source.text),
        before,
        after,
        has_comments(source),
        tuple(remarks),
        tuple(faults),
    )


def _document(document: Document, version: str, remarks: list[str], faults: list[str]) -> Any:
    name = document.source.name
    for twice in document.duplicates:
        faults.append(f"{name}:{twice.again}: `{twice.key}` stands here a second time; which one counts?")
    return _value(document, document.value, "", _Pen(version, remarks, faults))


@dataclass(frozen=True, slots=True)
class _Pen:
    """Where to go, and what is said on the way."""

    version: str
    remarks: list[str]
    faults: list[str]


def _value(document: Document, value: Any, prefix: str, pen: _Pen) -> Any:
    """A value of a document in the version wanted; lists item by item."""
    if is_list(value):
        implied = implied_by(value)
        items = []
        for i, item in enumerate(value["items"]):
            added = {k: v for k, v in implied.items() if k not in item} if isinstance(item, dict) else {}
            new = _value(document, {**added, **item} if added else item, below(prefix, f"items[{i}]"), pen)
            items.append({k: v for k, v in new.items() if k not in added} if added else new)
        return {**value, **_list_version(value, pen.version), "items": items}
    if not isinstance(value, dict):
        return value
    match identify(value):
        case Known(kind=kind, version=written) if kind.group == GROUP:
            return _object(document, value, prefix, (kind, written), pen)
        case Known(kind=kind) if kind.name == "Pod" and pen.version == "v1":
            return _pod(document, value, prefix, pen)
        case Workload(template=way) if pen.version == "v1":
            return _inside(document, value, (prefix, way.split(".")), pen)
    return value


def _list_version(value: Mapping[str, Any], version: str) -> dict[str, str]:
    """A typed list (`ResourceClaimList`) names the version of its items."""
    group, written = split_api_version(str(value.get("apiVersion")))
    typed = group == GROUP and written in VERSIONS and value["kind"] != "List"
    return {"apiVersion": f"{GROUP}/{version}"} if typed else {}


def _object(document: Document, value: dict[str, Any], prefix: str, what: tuple[Kind, str], pen: _Pen) -> Any:
    kind, written = what
    given, repairs = repaired(value, kind.name, written)

    def place(path: str) -> str:
        return f"{document.source.name}:{document.locate(below(prefix, path))}"

    for repair in repairs:
        pen.remarks.append(f"{place(repair.complaint.path)}: {repair.complaint.message}; repaired")
    try:
        decoded = decode_document(given)
    except DecodeError as refused:
        pen.faults.extend(f"{place(problem.path)}: {problem}" for problem in refused.problems)
        if not refused.problems:
            pen.faults.append(f"{place('')}: {refused}")
        return value
    for field in decoded.unknown:
        pen.remarks.append(f"{place(field.path)}: kept as it is: {field}")
    if written == pen.version:
        return dict(given)
    return down(kind, pen.version, up(kind, written, given))


def _pod(document: Document, value: Mapping[str, Any], prefix: str, pen: _Pen) -> Any:
    pod, repairs = repaired_pod(value)
    for repair in repairs:
        at = document.locate(below(prefix, repair.complaint.path))
        pen.remarks.append(f"{document.source.name}:{at}: {repair.complaint.message}; repaired")
    return tidied_pod(pod)


def _inside(document: Document, value: Mapping[str, Any], where: tuple[str, list[str]], pen: _Pen) -> Any:
    """A workload with today's spelling in its pod template."""
    prefix, way = where
    if not way:
        return _pod(document, value, prefix, pen)
    inner = value.get(way[0])
    if not isinstance(inner, Mapping):
        return value
    return {**value, way[0]: _inside(document, inner, (below(prefix, way[0]), way[1:]), pen)}


def _text(documents: Sequence[Any], output: str) -> str:
    return as_json(documents) if output == "json" else as_yaml(documents)


def _talk(one: Converted, write: bool) -> None:
    for remark in (*one.remarks, *one.faults):
        _say(remark)
    if one.loses_comments and not one.faults and (one.changed or not write):
        _say(f"{one.target.name}: comments are not kept")


def _write(converted: Sequence[Converted], output: str | None) -> int:
    changed = [one for one in converted if one.changed]
    for one in changed:
        assert one.target.path is not None
        manifest_files.replace_file(
            one.target.path, _text(one.after, output or ("json" if one.is_json else "yaml"))
        )
    _say(f"converted {len(changed)} of {len(converted)} file{'s' if len(converted) != 1 else ''}")
    return YES


def _say(text: str) -> None:
    click.echo(f"dray: {clean(text)}", err=True)

"""`dray convert`: convert manifests to another API version.

Theory of operation: everything is read and converted before anything is written, so that an error in the last
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
from dray.api.conversion import convert_from_internal, convert_to_internal
from dray.api.conversion.legacy_pods import normalize_pod as tidied_pod
from dray.api.kinds import KINDS, Kind, split_api_version
from dray.cli.exit_codes import EXIT_NO, EXIT_YES
from dray.cli.input import manifest_files
from dray.cli.output.text import print_message
from dray.errors import DecodeError
from dray.lint.document_kind import KnownObject, WorkloadTemplate, identify
from dray.lint.legacy.pods import repair_pod
from dray.lint.legacy.repairs import repair_document
from dray.manifests import ManifestDocument, ManifestSource, read_documents, to_json, to_yaml
from dray.manifests.documents import infer_item_type, is_list_object, join_path
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
class ConvertedFile:
    """One file: its documents before and after, and the remarks about it."""

    target: manifest_files.InputFile
    is_json: bool
    before: tuple[Any, ...]
    after: tuple[Any, ...]
    loses_comments: bool
    remarks: tuple[str, ...]
    faults: tuple[str, ...]

    @property
    def is_changed(self) -> bool:
        return self.before != self.after


@click.command("convert")
@click.argument("paths", nargs=-1, metavar="[FILES|FOLDERS|-]...")
@click.option("--to", "version", type=VersionType(), required=True, help=f"One of {', '.join(VERSIONS)}.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json"]),
    help="[default: yaml; with --write, the format of the file]",
)
@click.option(
    "--write", is_flag=True, help="Rewrite the files in place; those that need no change stay as they are."
)
def command(paths: tuple[str, ...], version: str, output: str | None, write: bool) -> int:
    """Convert the objects of resource.k8s.io in manifests to another API version.

    Other objects are passed through unchanged; the claims of pods get their current spelling when the version
    is v1. Lists stay lists, and files with several documents stay so. Comments are lost, with a message.
    """
    found = manifest_files.find_input_files(paths)
    if write and any(target.path is None for target in found):
        raise click.UsageError("`--write` cannot write back to standard input; name files")
    converted = [_convert_file(target, version) for target in found]
    for file in converted:
        _print_remarks(file, write)
    if any(file.faults for file in converted):
        print_message("nothing was written, because of the errors above")
        return EXIT_NO
    if write:
        return _write_files(converted, output)
    click.echo(
        _render_documents([document for file in converted for document in file.after], output or "yaml"),
        nl=False,
    )
    return EXIT_YES


def _convert_file(target: manifest_files.InputFile, version: str) -> ConvertedFile:
    source = ManifestSource.decode(target.name, manifest_files.read_contents(target))
    documents = list(read_documents(source))
    remarks: list[str] = []
    faults: list[str] = []
    after = tuple(_convert_document(document, version, remarks, faults) for document in documents)
    before = tuple(document.value for document in documents)
    return ConvertedFile(
        target,
        looks_like_json(source.text),
        before,
        after,
        has_comments(source),
        tuple(remarks),
        tuple(faults),
    )


def _convert_document(document: ManifestDocument, version: str, remarks: list[str], faults: list[str]) -> Any:
    name = document.source.name
    for twice in document.duplicates:
        faults.append(f"{name}:{twice.second}: `{twice.key}` stands here a second time; which one counts?")
    return _convert_value(document, document.value, "", _ConversionContext(version, remarks, faults))


@dataclass(frozen=True, slots=True)
class _ConversionContext:
    """The target version, and the remarks and faults so far."""

    version: str
    remarks: list[str]
    faults: list[str]


def _convert_value(document: ManifestDocument, value: Any, prefix: str, context: _ConversionContext) -> Any:
    """Convert a value of a document to the target version; lists item by item."""
    if is_list_object(value):
        implied = infer_item_type(value)
        items = []
        for i, item in enumerate(value["items"]):
            added = {k: v for k, v in implied.items() if k not in item} if isinstance(item, dict) else {}
            new = _convert_value(
                document, {**added, **item} if added else item, join_path(prefix, f"items[{i}]"), context
            )
            items.append({k: v for k, v in new.items() if k not in added} if added else new)
        return {**value, **_build_list_version(value, context.version), "items": items}
    if not isinstance(value, dict):
        return value
    match identify(value):
        case KnownObject(kind=kind, version=written) if kind.group == GROUP:
            return _convert_object(document, value, prefix, (kind, written), context)
        case KnownObject(kind=kind) if kind.name == "Pod" and context.version == "v1":
            return _convert_pod(document, value, prefix, context)
        case WorkloadTemplate(template=path) if context.version == "v1":
            return _convert_workload(document, value, (prefix, path.split(".")), context)
    return value


def _build_list_version(value: Mapping[str, Any], version: str) -> dict[str, str]:
    """A typed list (`ResourceClaimList`) names the version of its items."""
    group, written = split_api_version(str(value.get("apiVersion")))
    typed = group == GROUP and written in VERSIONS and value["kind"] != "List"
    return {"apiVersion": f"{GROUP}/{version}"} if typed else {}


def _convert_object(
    document: ManifestDocument,
    value: dict[str, Any],
    prefix: str,
    kind_and_version: tuple[Kind, str],
    context: _ConversionContext,
) -> Any:
    kind, written = kind_and_version
    given, repairs = repair_document(value, kind.name, written)

    def format_place(path: str) -> str:
        return f"{document.source.name}:{document.locate(join_path(prefix, path))}"

    for repair in repairs:
        context.remarks.append(f"{format_place(repair.finding.path)}: {repair.finding.message}; repaired")
    try:
        decoded = decode_document(given)
    except DecodeError as refused:
        context.faults.extend(f"{format_place(problem.path)}: {problem}" for problem in refused.problems)
        if not refused.problems:
            context.faults.append(f"{format_place('')}: {refused}")
        return value
    for field in decoded.unknown_fields:
        context.remarks.append(f"{format_place(field.path)}: kept as it is: {field}")
    if written == context.version:
        return dict(given)
    return convert_from_internal(kind, context.version, convert_to_internal(kind, written, given))


def _convert_pod(
    document: ManifestDocument, value: Mapping[str, Any], prefix: str, context: _ConversionContext
) -> Any:
    pod, repairs = repair_pod(value)
    for repair in repairs:
        at = document.locate(join_path(prefix, repair.finding.path))
        context.remarks.append(f"{document.source.name}:{at}: {repair.finding.message}; repaired")
    return tidied_pod(pod)


def _convert_workload(
    document: ManifestDocument,
    value: Mapping[str, Any],
    where: tuple[str, list[str]],
    context: _ConversionContext,
) -> Any:
    """Convert the pod template of a workload to the current spelling."""
    prefix, way = where
    if not way:
        return _convert_pod(document, value, prefix, context)
    inner = value.get(way[0])
    if not isinstance(inner, Mapping):
        return value
    return {
        **value,
        way[0]: _convert_workload(document, inner, (join_path(prefix, way[0]), way[1:]), context),
    }


def _render_documents(documents: Sequence[Any], output: str) -> str:
    return to_json(documents) if output == "json" else to_yaml(documents)


def _print_remarks(file: ConvertedFile, write: bool) -> None:
    for remark in (*file.remarks, *file.faults):
        print_message(remark)
    if file.loses_comments and not file.faults and (file.is_changed or not write):
        print_message(f"{file.target.name}: comments are not kept")


def _write_files(converted: Sequence[ConvertedFile], output: str | None) -> int:
    changed = [file for file in converted if file.is_changed]
    for file in changed:
        assert file.target.path is not None
        manifest_files.replace_file(
            file.target.path, _render_documents(file.after, output or ("json" if file.is_json else "yaml"))
        )
    print_message(f"converted {len(changed)} of {len(converted)} file{'s' if len(converted) != 1 else ''}")
    return EXIT_YES

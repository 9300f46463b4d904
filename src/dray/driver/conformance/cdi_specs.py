"""Checks of the CDI files in a directory, in JSON or YAML, whoever wrote them.

Theory of operation: the directory belongs to all drivers of the node. The suite reads every file there and
lists what was there before it prepares a claim; it may change a file only when the file appeared afterwards
and describes nothing but devices of that claim.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import msgspec
import yaml

from dray.driver.conformance.results import CheckSkippedError, NotConformantError
from dray.wire import cdi

_SUFFIXES = (".json", ".yaml")


@dataclass(frozen=True, slots=True)
class DescribedDevices:
    """The CDI devices that each file of a directory describes, at one time."""

    by_file: Mapping[Path, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for names in self.by_file.values() for name in names)


NOTHING_DESCRIBED = DescribedDevices()


def check_device_names(names: Iterable[str]) -> None:
    """Raise `NotConformantError` when a name is no qualified name of a CDI device."""
    for name in names:
        try:
            cdi.parse_qualified_name(name)
        except ValueError as wrong:
            raise NotConformantError(
                str(wrong), "`vendor/class=device` as the name of a CDI device"
            ) from None


def list_described_devices(directory: Path | None) -> DescribedDevices:
    """List every file of the directory with the devices that it describes; none when it cannot be read."""
    return DescribedDevices({path: _list_names(document) for path, _, document in _read_documents(directory)})


def find_spec_files(directory: Path, names: Collection[str]) -> dict[str, list[Path]]:
    """Return the files that describe each device; raises `NotConformantError` for an invalid file among
    them.
    """
    found: dict[str, list[Path]] = {name: [] for name in names}
    kinds = {cdi.parse_qualified_name(name).kind for name in names}
    for path, content, document in _read_documents(directory):
        if _get_kind(document) not in kinds:
            continue
        for name in _parse_device_names(path, content, document):
            if name in found:
                found[name].append(path)
    return found


def check_all_described(directory: Path, names: Collection[str]) -> list[Path]:
    """Check that each device is described exactly once, and return the files."""
    files = find_spec_files(directory, names)
    for name, paths in files.items():
        if not paths:
            raise NotConformantError(
                f"`{name}` is described in no file of `{directory}`",
                "a JSON or YAML file there that describes it by the time of the answer",
            )
        if len(paths) > 1:
            shown = " and ".join(f"`{path.name}`" for path in paths)
            raise NotConformantError(
                f"`{name}` is described twice, in {shown}: no container can use it", "one file"
            )
    return sorted({path for paths in files.values() for path in paths})


def check_none_described(directory: Path, names: Collection[str]) -> None:
    """Raise `NotConformantError` when one of the devices is still described."""
    for name, paths in find_spec_files(directory, names).items():
        if paths:
            raise NotConformantError(
                f"`{name}` is still described in `{paths[0].name}`",
                "no file that describes it once the claim is given back",
            )


def find_own_files(directory: Path, before: DescribedDevices, names: Collection[str]) -> list[Path]:
    """Return the files that describe devices of one claim and nothing else, and that were not there before.

    Raises `CheckSkippedError` when a device is described in any other file: that one is not the suite's to
    change.
    """
    files = check_all_described(directory, names)
    now = list_described_devices(directory)
    for path in files:
        if path in before.by_file:
            raise CheckSkippedError(
                f"the driver describes the claim in `{path.name}`, which was there before the claim"
            )
        others = now.by_file.get(path, frozenset()) - frozenset(names)
        if others:
            raise CheckSkippedError(
                f"the driver describes the claim in `{path.name}`, which also describes `{min(others)}`"
            )
    return files


def _read_documents(directory: Path | None) -> Iterator[tuple[Path, bytes, object]]:
    """Read every file that a runtime would read; files without a document are ignored."""
    for path in sorted(directory.iterdir() if directory is not None and directory.is_dir() else ()):
        if path.suffix not in _SUFFIXES or path.name.startswith("."):
            continue
        try:
            content = path.read_bytes()
            yield path, content, yaml.safe_load(content)
        except (OSError, yaml.YAMLError, UnicodeDecodeError):
            continue


def _get_kind(document: object) -> object:
    return document.get("kind") if isinstance(document, dict) else None


def _list_names(document: object) -> frozenset[str]:
    """Return the devices of a document, however invalid the rest of it is."""
    devices = document.get("devices") if isinstance(document, dict) else None
    kind = _get_kind(document)
    return frozenset(
        f"{kind}={each['name']}"
        for each in (devices if isinstance(devices, list) else ())
        if isinstance(each, dict) and "name" in each
    )


def _parse_device_names(path: Path, content: bytes, document: object) -> list[str]:
    try:
        spec = cdi.parse_spec(content if path.suffix == ".json" else msgspec.json.encode(document))
    except cdi.CdiSpecError as bad:
        raise NotConformantError(
            f"no runtime would accept `{path.name}`: {bad}", "a valid CDI specification"
        ) from None
    return [str(cdi.QualifiedDeviceName(spec.kind, device.name)) for device in spec.devices]

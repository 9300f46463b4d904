"""Checks of the CDI files in a directory, whoever wrote them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec
import yaml

from dray.driver.conformance.results import NotConformantError
from dray.wire import cdi


def check_device_names(names: Iterable[str]) -> None:
    """Raise `NotConformantError` when a name is no qualified name of a CDI device."""
    for name in names:
        try:
            cdi.parse_qualified_name(name)
        except ValueError as wrong:
            raise NotConformantError(str(wrong)) from None


def find_spec_files(directory: Path, names: Collection[str]) -> dict[str, list[Path]]:
    """Return the files that describe each device; raises `NotConformantError` for an invalid file among
    them.
    """
    found: dict[str, list[Path]] = {name: [] for name in names}
    kinds = {cdi.parse_qualified_name(name).kind for name in names}
    for path in sorted(directory.iterdir() if directory.is_dir() else ()):
        if path.suffix not in (".json", ".yaml") or path.name.startswith("."):
            continue
        for name in _read_device_names(path, kinds):
            if name in found:
                found[name].append(path)
    return found


def _read_device_names(path: Path, kinds: Collection[str]) -> list[str]:
    """Return the devices of a file of one of these kinds; files of other drivers are ignored."""
    try:
        content = path.read_bytes()
        document = yaml.safe_load(content)
    except (OSError, yaml.YAMLError, UnicodeDecodeError):
        return []
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind not in kinds:
        return []
    try:
        spec = cdi.parse_spec(content if path.suffix == ".json" else msgspec.json.encode(document))
    except cdi.CdiSpecError as bad:
        raise NotConformantError(f"no runtime would accept `{path.name}`: {bad}") from None
    return [str(cdi.QualifiedDeviceName(spec.kind, device.name)) for device in spec.devices]


def list_described_devices(directory: Path) -> frozenset[str]:
    """Return every device that valid files in the directory describe."""
    names: set[str] = set()
    for path in directory.glob("*.json") if directory.is_dir() else ():
        try:
            spec = cdi.parse_spec(path.read_bytes())
        except (OSError, cdi.CdiSpecError):
            continue
        names.update(str(cdi.QualifiedDeviceName(spec.kind, device.name)) for device in spec.devices)
    return frozenset(names)


def check_all_described(directory: Path, names: Collection[str]) -> list[Path]:
    """Check that each device is described exactly once, and return the files."""
    files = find_spec_files(directory, names)
    for name, paths in files.items():
        if not paths:
            raise NotConformantError(f"`{name}` is described in no file of `{directory}`")
        if len(paths) > 1:
            shown = " and ".join(f"`{path.name}`" for path in paths)
            raise NotConformantError(f"`{name}` is described twice, in {shown}: no container can use it")
    return sorted({path for paths in files.values() for path in paths})


def check_none_described(directory: Path, names: Collection[str]) -> None:
    """Raise `NotConformantError` when one of the devices is still described."""
    for name, paths in find_spec_files(directory, names).items():
        if paths:
            raise NotConformantError(f"`{name}` is still described in `{paths[0].name}`")

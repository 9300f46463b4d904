"""Templates of a new driver project: the files of a small driver that works, with blanks for its names.

The package fills the templates in and never runs them. It must not contain any other part of the kit. `dray
driver new` imports it and writes the files.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from string import Template
from typing import Final

from dray.errors import InputError
from dray.values.names import check_driver_name

_TEMPLATES: Final = {
    "README.md": "readme.txt",
    "pyproject.toml": "pyproject.txt",
    "$module.py": "module.txt",
    "test_$module.py": "tests.txt",
    "example.yaml": "example.txt",
    "Containerfile": "containerfile.txt",
}
"""The files of a project, and the template of each."""
_RESERVED_CLASS_NAMES: Final = (
    "Claim",
    "Device",
    "Driver",
    "Got",
    "Iterator",
    "Literal",
    "Ready",
    "Setting",
    "Settings",
)
"""Names that the templates use for something else."""


@dataclass(frozen=True, slots=True)
class ProjectNames:
    """The names in a project, derived from the name of its driver."""

    name: str

    @property
    def label(self) -> str:
        """The first part of the name, which is also the prefix of device names."""
        return self.name.partition(".")[0]

    @property
    def starts_with_letter(self) -> bool:
        return self.label[0].isalpha()

    @property
    def module(self) -> str:
        word = self.label.replace("-", "_")
        return f"{word}_driver" if self.starts_with_letter else f"driver_{word}"

    @property
    def class_name(self) -> str:
        """The name of the driver class."""
        word = "".join(part.capitalize() for part in self.label.split("-"))
        if word in _RESERVED_CLASS_NAMES:
            return f"{word}Driver"
        return word if self.starts_with_letter else f"Driver{word}"

    @property
    def directory(self) -> str:
        return f"{self.label}-driver"


def build_project_names(name: str) -> ProjectNames:
    """Derive the names of a project; raises `InputError` when the driver's name is invalid."""
    faults = check_driver_name(name)
    if faults:
        # The message of Kubernetes ends with a regular expression.
        why = faults[0].text.partition(" (e.g. ")[0]
        raise InputError(f"`{name}` is no name for a driver: {why}; for example `gpu.example.com`")
    if name != name.lower():
        raise InputError(f"`{name}` is no name for a driver here: write it in lower case, as claims do")
    if "." not in name:
        raise InputError(
            f"`{name}` is no name for a driver: give it a domain that is yours, for example "
            f"`{name}.example.com`; it is in every claim that uses your devices"
        )
    return ProjectNames(name)


def render_project(names: ProjectNames) -> dict[str, str]:
    """Render the files of a project, by path."""
    variable = names.label.upper().replace("-", "_")
    blanks = {
        "name": names.name,
        "label": names.label,
        "module": names.module,
        "class_name": names.class_name,
        "variable": variable if names.starts_with_letter else f"DEVICE_{names.label.upper()}",
        "directory": names.directory,
    }
    templates = resources.files(__name__)
    return {
        Template(path).substitute(blanks): Template(
            templates.joinpath(template).read_text("utf-8")
        ).substitute(blanks)
        for path, template in _TEMPLATES.items()
    }

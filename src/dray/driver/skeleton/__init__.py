"""A driver to start from: the files of a small project that works, as texts with blanks for its name.

What is here is filled in, never run; nothing else of the kit may live here. `dray driver new` writes it out.
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
}
"""The files of a project, and the text that each is made of."""
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
"""Names that mean something else in these files."""


@dataclass(frozen=True, slots=True)
class ProjectNames:
    """What a driver of some name calls its parts."""

    name: str

    @property
    def label(self) -> str:
        """The first part of the name: what the devices are called."""
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
        """The name of the class."""
        word = "".join(part.capitalize() for part in self.label.split("-"))
        if word in _RESERVED_CLASS_NAMES:
            return f"{word}Driver"
        return word if self.starts_with_letter else f"Driver{word}"

    @property
    def directory(self) -> str:
        return f"{self.label}-driver"


def build_project_names(name: str) -> ProjectNames:
    """The names for a driver; `InputError` when it cannot be called so."""
    faults = check_driver_name(name)
    if faults:
        # The words of Kubernetes come with a regular expression.
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
    """The files of a project, by their names."""
    blanks = {
        "name": names.name,
        "label": names.label,
        "module": names.module,
        "shape": names.class_name,
        "variable": names.label.upper().replace("-", "_")
        if names.starts_with_letter
        else f"DEVICE_{names.label.upper()}",
        "folder": names.directory,
    }
    texts = resources.files(__name__)
    return {
        Template(path).substitute(blanks): Template(texts.joinpath(text).read_text("utf-8")).substitute(
            blanks
        )
        for path, text in _TEMPLATES.items()
    }

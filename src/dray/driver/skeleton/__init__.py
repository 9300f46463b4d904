"""A driver to start from: the files of a small project that works, as texts with blanks for its name.

What is here is filled in, never run; nothing else of the kit may live here. `dray driver new` writes it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from string import Template
from typing import Final

from dray.errors import InputError
from dray.values.names import driver_name

_FILES: Final = {
    "README.md": "readme.txt",
    "pyproject.toml": "pyproject.txt",
    "$module.py": "module.txt",
    "test_$module.py": "tests.txt",
    "example.yaml": "example.txt",
}
"""The files of a project, and the text that each is made of."""
_TAKEN: Final = ("Claim", "Device", "Driver", "Got", "Iterator", "Literal", "Ready", "Setting", "Settings")
"""Names that mean something else in these files."""


@dataclass(frozen=True, slots=True)
class Names:
    """What a driver of some name calls its parts."""

    name: str

    @property
    def label(self) -> str:
        """The first part of the name: what the devices are called."""
        return self.name.partition(".")[0]

    @property
    def is_word(self) -> bool:
        return self.label[0].isalpha()

    @property
    def module(self) -> str:
        word = self.label.replace("-", "_")
        return f"{word}_driver" if self.is_word else f"driver_{word}"

    @property
    def shape(self) -> str:
        """The name of the class."""
        word = "".join(part.capitalize() for part in self.label.split("-"))
        if word in _TAKEN:
            return f"{word}Driver"
        return word if self.is_word else f"Driver{word}"

    @property
    def folder(self) -> str:
        return f"{self.label}-driver"


def names_of(name: str) -> Names:
    """The names for a driver; `InputError` when it cannot be called so."""
    faults = driver_name(name)
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
    return Names(name)


def project(names: Names) -> dict[str, str]:
    """The files of a project, by their names."""
    blanks = {
        "name": names.name,
        "label": names.label,
        "module": names.module,
        "shape": names.shape,
        "variable": names.label.upper().replace("-", "_")
        if names.is_word
        else f"DEVICE_{names.label.upper()}",
        "folder": names.folder,
    }
    texts = resources.files(__name__)
    return {
        Template(path).substitute(blanks): Template(texts.joinpath(text).read_text("utf-8")).substitute(
            blanks
        )
        for path, text in _FILES.items()
    }

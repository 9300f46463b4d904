"""The bill of materials of an installation: distributions, versions and licences, as CycloneDX and as text.

It reads the metadata of the interpreter that runs it, so `make release` runs it inside the environment into
which the wheel was installed. It uses the standard library alone, because nothing else may be added there.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

PRODUCT = "dray"
NOT_SHIPPED = frozenset({"pip", "setuptools", "wheel"})
"""What `python -m venv` puts into an environment."""

ALLOWED = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "ISC",
        "MIT",
        "MIT-0",
        "MPL-2.0",
        "PSF-2.0",
        "Python-2.0",
        "Unlicense",
        "Zlib",
    }
)
"""Licences, by SPDX identifier, that may stand beside the Apache License 2.0 of dray in one installation."""

SPELLINGS: Mapping[str, str] = {
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "3-clause bsd license": "BSD-3-Clause",
    "bsd": "BSD-3-Clause",
    "bsd license": "BSD-3-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
}
"""Licences as older metadata spells them, in lower case."""

CLASSIFIER = "License :: OSI Approved :: "


@dataclass(frozen=True, order=True)
class Component:
    """One installed distribution."""

    name: str
    version: str
    licence: str
    requires: tuple[str, ...]

    @property
    def purl(self) -> str:
        """The package URL, which names a distribution without an address."""
        return f"pkg:pypi/{self.name}@{self.version}"


def normalise(name: str) -> str:
    """The name of a distribution as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def find_licence(distribution: Distribution) -> str:
    """The licence of a distribution as an SPDX expression; what its metadata says when that is none."""
    metadata = distribution.metadata
    for expression in metadata.get_all("License-Expression", []):
        return str(expression)
    stated = [str(words) for words in metadata.get_all("License", [])]
    stated += [
        row.removeprefix(CLASSIFIER)
        for row in metadata.get_all("Classifier", [])
        if row.startswith(CLASSIFIER)
    ]
    for words in stated:
        short = words.strip().splitlines()[0].strip() if words.strip() else ""
        known = short if is_allowed(short) else SPELLINGS.get(short.lower())
        if known:
            return known
    return next((words.strip().splitlines()[0] for words in stated if words.strip()), "unknown")


def is_allowed(expression: str) -> bool:
    """Whether a licence expression may be shipped: every part joined by AND, one part joined by OR."""
    choices = re.split(r"\s+OR\s+", expression.strip("() "))
    return any(
        all(part.strip("() ") in ALLOWED for part in re.split(r"\s+AND\s+", choice)) for choice in choices
    )


def find_components() -> list[Component]:
    """Everything that is installed for dray, and dray itself."""
    found = {
        normalise(dist.name): Component(
            normalise(dist.name), dist.version, find_licence(dist), find_requirements(dist)
        )
        for dist in distributions()
    }
    return sorted(component for name, component in found.items() if name not in NOT_SHIPPED)


def find_requirements(distribution: Distribution) -> tuple[str, ...]:
    """Names of the distributions that a distribution asks for, extras left out."""
    wanted = [row for row in distribution.requires or [] if "extra ==" not in row]
    names = (re.match(r"[A-Za-z0-9._-]+", row) for row in wanted)
    return tuple(sorted({normalise(found[0]) for found in names if found}))


def make_document(components: Iterable[Component]) -> dict[str, Any]:
    """The bill of materials in the format CycloneDX 1.5."""
    rows = list(components)
    product = next(row for row in rows if row.name == PRODUCT)
    installed = {row.name: row for row in rows}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, product.purl)}",
        "version": 1,
        "metadata": {"component": make_component(product, "application")},
        "components": [make_component(row, "library") for row in rows if row is not product],
        "dependencies": [
            {
                "ref": row.purl,
                "dependsOn": [installed[name].purl for name in row.requires if name in installed],
            }
            for row in rows
        ],
    }


def make_component(component: Component, kind: str) -> dict[str, Any]:
    """One entry of the bill of materials."""
    return {
        "type": kind,
        "bom-ref": component.purl,
        "name": component.name,
        "version": component.version,
        "purl": component.purl,
        "licenses": [{"expression": component.licence}]
        if is_allowed(component.licence)
        else [{"license": {"name": component.licence}}],
    }


def render_licences(components: Iterable[Component]) -> str:
    """The list of licences for people."""
    rows = [f"{row.name} {row.version}: {row.licence}" for row in components]
    return "\n".join(rows) + "\n"


def main(arguments: list[str]) -> int:
    """Write both files; end with 1 when a licence is not on the list."""
    bill, licences = map(Path, arguments)
    components = find_components()
    bill.write_text(json.dumps(make_document(components), indent=2) + "\n", "utf-8")
    licences.write_text(render_licences(components), "utf-8")
    refused = [row for row in components if not is_allowed(row.licence)]
    for row in refused:
        print(f"{row.name} {row.version}: licence `{row.licence}` is not on the list of tools/materials.py")
    print(f"{len(components)} components, {len(refused)} with a licence that is not on the list")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

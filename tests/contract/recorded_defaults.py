"""Recorded defaults: small objects of every kind, and what kube-apiserver 1.37 stores for each.

`defaults/given/*.yaml` has the objects as a user writes them; `defaults/stored/*.json` has the answers,
without what differs from server to server. `tests/kubernetes/test_recorded_defaults.py` compares them with a
server of Kubernetes, and writes them when `DRAY_RECORD` is set.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]

FOLDER = Path(__file__).parent / "defaults"
SETS = tuple(sorted(file.stem for file in (FOLDER / "given").glob("*.yaml")))

_TIME = re.compile(r'"\d{4}-\d\d-\d\dT[\d:.]+Z"')
_ADDRESS = re.compile(r'"10\.96\.0\.\d+"')
"""An address of a service, from the range of the control plane in the tests."""
_VOLATILE = ("uid", "creationTimestamp", "resourceVersion", "managedFields", "namespace")


@dataclass(frozen=True)
class DefaultsCase:
    """One object as written; `id` names it in its set."""

    id: str
    given: Document


def read_cases(name: str) -> Iterator[DefaultsCase]:
    for document in yaml.safe_load_all((FOLDER / "given" / f"{name}.yaml").read_text()):
        yield DefaultsCase(f"{document['kind']}/{document['metadata']['name']}", document)


def read_answers(name: str) -> dict[str, Document]:
    return dict(json.loads((FOLDER / "stored" / f"{name}.json").read_text()))


def write_answers(name: str, answers: dict[str, Document]) -> None:
    text = json.dumps(answers, indent=1, sort_keys=True) + "\n"
    (FOLDER / "stored" / f"{name}.json").write_text(text)


def drop_volatile_fields(answer: Document) -> Document:
    """A stored object without identity; its uid elsewhere, times and addresses are replaced by words."""
    uid = answer["metadata"].get("uid", "")
    text = json.dumps(answer)
    text = _ADDRESS.sub('"ADDRESS"', _TIME.sub('"TIME"', text))
    document: Document = json.loads(text.replace(uid, "UID") if uid else text)
    document["metadata"] = {
        name: value for name, value in document["metadata"].items() if name not in _VOLATILE
    }
    return document

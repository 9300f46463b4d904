"""The oracle: cel-expr-python, when it is installed.

It has no device type and few functions of Kubernetes, so it gets the attributes as a plain map, and
expressions use only what both implement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

MODULE = "cel_expr_python"
INSTALL = "install requirements/oracle.txt to compare with another implementation of CEL"

_CONFIG = """
name: selectors
extensions:
  - name: optional
  - name: bindings
  - name: strings
  - name: sets
  - name: lists
  - name: two-var-comprehensions
"""


@dataclass(frozen=True)
class Opinion:
    """What the oracle says: a boolean, or how it failed (`compile` or `run`) and with which words."""

    value: bool | None
    failed: str = ""
    words: str = ""


def is_installed() -> bool:
    return find_spec(MODULE) is not None


class Oracle:
    """Another implementation of CEL, over the same attributes."""

    def __init__(self, driver: str, attributes: Mapping[str, Mapping[str, Any]]) -> None:
        cel: Any = import_module(f"{MODULE}.cel")
        kind = cel.Type
        variables = {
            "driver": kind.STRING,
            "attributes": kind.Map(kind.STRING, kind.Map(kind.STRING, kind.DYN)),
        }
        self.env = cel.NewEnv(config=cel.NewEnvConfigFromYaml(_CONFIG), variables=variables)
        plain = {
            domain: {key: _plain(value) for key, value in held.items()} for domain, held in attributes.items()
        }
        self.values = {"driver": driver, "attributes": plain}

    def ask(self, expression: str) -> Opinion:
        text = expression.replace("device.attributes", "attributes").replace("device.driver", "driver")
        try:
            compiled = self.env.compile(text)
        except Exception as refused:
            return Opinion(None, "compile", str(refused))
        try:
            result = compiled.eval(data=self.values)
        except Exception as failed:
            return Opinion(None, "run", str(failed))
        kind = str(result.type())
        # Other values are not looked at: turning some of them into Python values ends the process.
        if kind == "BOOL":
            return Opinion(bool(result.plain_value()))
        return Opinion(None, "run", _words(result) if kind == "ERROR" else f"a value of type {kind}")


def _words(result: Any) -> str:
    try:
        return str(result.plain_value())
    except TypeError:
        return "an optional"


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value

"""The rules that explain why dray answers some requests differently."""

from __future__ import annotations

from tests.mutations.comparison import Rule

RULES: tuple[Rule, ...] = ()

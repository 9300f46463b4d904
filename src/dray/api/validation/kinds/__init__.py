"""Validation rules of each kind, one module per kind or part of a kind.

The package contains no shared field rule (`field_rules`), no limit (`limits`) and no table of kinds
(`kind_rules`). Only `dray.api.validation` imports it.
"""

"""Exceptions from the rules for names, each with its reason. An unneeded exception fails the tests."""

from __future__ import annotations

PARTICIPLES: dict[str, str] = {
    "src/dray/api/fields.py:required": "Kubernetes calls this kind of field error `Required`",
    "src/dray/driver/base.py:changed": "author API: drivers call `self.changed()`",
    "src/dray/telemetry/logs.py:warning": "the name that `logging` gives this method",
}
"""Function (path and name) to the reason why it is called like this."""

REPEATED_CLASSES: dict[str, str] = {}
"""Class name to the reason why two public classes have it."""

METAPHORS: dict[str, str] = {
    "src/dray/explain/rendering/document.py": "a key of the JSON document that users have",
    "tests/unit/explain/rendering/test_document.py": "a key of the JSON document that users have",
    "tests/unit/cli/test_search_timeout.py": "a key of the JSON document that users have",
    "CHANGELOG.md": "older names, where it says what they are now",
    "docs/renamed-names.md": "older names, where it says what they are now",
}
"""Path of a file to the reason why it contains one of the words."""

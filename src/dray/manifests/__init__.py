"""Manifests: bytes that people write, read into documents whose every field can be found again.

YAML as `kubectl` reads it, JSON, many documents in one file, lists of objects; and the way back, documents to
text. Nothing here opens files or knows what an object means (see `dray.api`): bytes and a name come in, plain
values and positions go out. Everything above the vocabulary may import it: `lint`, the simulator, the doors.
"""

from dray.manifests.documents import ManifestDocument, expand_items, read_documents
from dray.manifests.source import ManifestReadError, ManifestSource, TextPosition
from dray.manifests.writer import to_json, to_yaml

__all__ = [
    "ManifestDocument",
    "ManifestReadError",
    "ManifestSource",
    "TextPosition",
    "expand_items",
    "read_documents",
    "to_json",
    "to_yaml",
]

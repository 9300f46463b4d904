"""Manifests: YAML and JSON files, read into documents whose fields can be located in the text.

The package reads YAML as `kubectl` does, JSON, several documents in one file and lists of objects, and writes
documents as text. Nothing here opens files or interprets objects (see `dray.api`): bytes and a name come in,
plain values and positions go out. The packages above `dray.api` may import it: `lint`, the simulator, the
cluster and the command line.
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

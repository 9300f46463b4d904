"""OpenAPI documents: schemas and paths, for `kubectl explain` and other clients.

The documents are generated from tables: the structs, their descriptions, the merge rules of lists, and the
resources of discovery. It must not define any of these itself. Only the assembly of the server imports it.
"""

from dray.server.openapi.documents import OpenApiDocuments

__all__ = ["OpenApiDocuments"]

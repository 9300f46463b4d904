"""The OpenAPI documents: what objects look like and which paths there are, for `kubectl explain` and others.

Everything here is printed from tables: the structs, their descriptions, how lists are merged, and the
resources of discovery; nothing is stated here for the first time. Only the composition of the server imports
this package.
"""

from dray.server.openapi.documents import OpenApiDocuments

__all__ = ["OpenApiDocuments"]

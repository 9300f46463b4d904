"""How documents are changed: patches of four kinds, the shape of lists and maps, and who owns which field.

Everything here is a pure function from documents to new documents; inputs are never changed. Nothing here
knows requests, rights or the store: the verbs of the server call it, and whatever publishes schemas reads
its tables.
"""

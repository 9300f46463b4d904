"""Patches of four kinds, the structure of lists and maps, and managed fields.

Everything here is a pure function from documents to new documents; inputs are never changed. It must not know
requests, rights or the store. The registry calls it, and `openapi` reads its tables.
"""

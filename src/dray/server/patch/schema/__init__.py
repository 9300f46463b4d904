"""The structure of fields per kind that patches and managed fields need.

It contains list types, map keys, merge strategies, path elements, and the tables of kinds. It must not apply
anything. The modules of `patch`, and `openapi`, may import it.
"""

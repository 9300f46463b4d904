"""The tables: which lists and maps of which kind are owned and merged how, as Kubernetes publishes it.

Only facts live here, one module per family of kinds, and no code beyond the constructors of `shape`. A place
that is not listed is plain, or a list replaced whole. `structure` reads the tables; nobody else does.
"""

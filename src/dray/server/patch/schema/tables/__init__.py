"""Tables of which lists and maps of each kind are owned and merged how, as Kubernetes publishes it.

It contains facts, one module per family of kinds, and must not contain code beyond the constructors of
`field_structure`. A field that is not listed is plain, or an atomic list. Only `kind_structures` imports it.
"""

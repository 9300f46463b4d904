"""The strategy of an API server for incoming objects: default values, fields dropped behind disabled feature
gates, and the create strategy that applies both and validates. It contains tables and pure functions; no
rule of validation and no lookup of other objects. The API server, the simulator, lint and the command line
may import it.
"""

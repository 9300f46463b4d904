"""The commands of `dray`, one module each, grouped by what they work on. A command parses options, calls
another package and prints; it must not contain rules about devices or manifests. Only the lazy table in
`dray.cli.app` and the tests refer to it.
"""

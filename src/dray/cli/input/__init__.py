"""Where commands get their input: shared options, manifest files, clusters read from manifests, and
connections to a server. It must not contain a command or render results. Only `dray.cli.commands` imports
it.
"""

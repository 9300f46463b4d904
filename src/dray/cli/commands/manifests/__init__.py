"""Commands that read manifest files: allocate, lint, convert, cel, verify. They must not need a server. Only
the command table imports it.
"""

"""A store in one file: SQLite in WAL mode, fully synchronous, one writer with group commit, a few readers.

Only `store` is meant for others; what stands in the file is known to `rows` and `files` alone, and nothing
here understands the values it keeps. The address book of the store package and the server's backup and
restore commands import it.
"""

"""The store in one SQLite file: WAL mode, fully synchronous, one writer with group commit, a few readers.

Only `store` and `migration` are meant for others; only `rows`, `database_file` and `format_1` know a file
format. Nothing here interprets the values. The addresses of the store package and the backup, restore and
migrate commands of the server import it.
"""

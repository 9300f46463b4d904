"""The store in one SQLite file: WAL mode, fully synchronous, one writer with group commit, a few readers.

Only `store` is meant for others; only `rows` and `database_file` know the file format. Nothing here
interprets the values. The addresses of the store package and the backup and restore commands of the server
import it.
"""

"""Rules of the device ledger: rows and their keys, grants and denials, prepared devices, the audit of rows
against claims, and the marker of a restored store. It must not contain storage access, a clock or a
network. The API server imports it; commands import the restore marker.
"""

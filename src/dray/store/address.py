"""Addresses of stores, and opening a store by its address.

memory:                                    nothing is stored durably
sqlite:path/to/file  or just a path        one file
etcd://host:port,host:port/prefix          a running etcd, everything under `prefix`
etcds://host:port/prefix?ca=FILE&cert=FILE&key=FILE
                                           the same over TLS; without `ca` the CAs of the system are
                                           trusted, `cert` and `key` authenticate the client
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from dray.store.base import Store
from dray.store.errors import StoreOpenError
from dray.store.memory import MemoryStore
from dray.store.sqlite.store import SqliteStore

DEFAULT_PREFIX = "dray"
TLS_PARAMETERS = ("ca", "cert", "key")


async def open_store(address: str) -> Store:
    """Open the store at the address; raises `StoreOpenError` with what to do."""
    if address == "memory:":
        return MemoryStore()
    path = parse_sqlite_path(address)
    if path is not None:
        return await SqliteStore.open(path)
    scheme, _, rest = address.partition(":")
    return await _open_etcd(scheme, rest, address)


def parse_sqlite_path(address: str) -> Path | None:
    """Return the file that the address names; None for other stores."""
    scheme, colon, rest = address.partition(":")
    if address == "memory:" or (colon and scheme in ("etcd", "etcds")):
        return None
    text = rest if colon and scheme == "sqlite" else address
    if not text or "://" in text:
        raise StoreOpenError(
            f"`{address}` is no store; give `memory:`, the path of a file, or `etcd://host:port/prefix`"
        )
    return Path(text)


async def _open_etcd(scheme: str, rest: str, address: str) -> Store:
    place, _, query = rest.removeprefix("//").partition("?")
    hosts, _, prefix = place.partition("/")
    endpoints = tuple(host for host in hosts.split(",") if host)
    if not rest.startswith("//") or not endpoints or not all(":" in host for host in endpoints):
        raise StoreOpenError(
            f"`{address}` names no etcd; write `{scheme}://host:port/prefix`, several hosts with commas"
        )
    files = _parse_tls_files(query, address)
    if files and scheme == "etcd":
        raise StoreOpenError(f"`{address}` names files for TLS but asks for none; write `etcds://`")
    # Only this back end needs grpc, which takes a tenth of a second to import.
    from dray.store.etcd.client import EtcdTlsFiles
    from dray.store.etcd.store import EtcdStore

    key_prefix = f"/{prefix.strip('/') or DEFAULT_PREFIX}/".encode()
    tls = EtcdTlsFiles(files.get("ca"), files.get("cert"), files.get("key")) if scheme == "etcds" else None
    return await EtcdStore.open(endpoints, prefix=key_prefix, tls=tls)


def _parse_tls_files(query: str, address: str) -> dict[str, Path]:
    """Parse the TLS files that the address names; each must exist."""
    files: dict[str, Path] = {}
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        if name not in TLS_PARAMETERS or not value:
            raise StoreOpenError(
                f"`{part}` in `{address}` means nothing; etcds:// knows `ca=`, `cert=` and `key=`"
            )
        files[name] = Path(unquote(value))
        if not files[name].is_file():
            raise StoreOpenError(f"there is no file `{files[name]}`, which `{address}` names as `{name}`")
    if ("cert" in files) != ("key" in files):
        raise StoreOpenError(f"`{address}` names one of `cert` and `key`; both are needed to show who we are")
    return files

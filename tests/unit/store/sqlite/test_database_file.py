"""Errors of the database file: what a person reads when the store cannot be opened."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from dray.store.errors import CorruptStoreError, StoreOpenError, StoreWriteError
from dray.store.sqlite.database_file import RESTORE_HINT, explain_error, prepare_file, verify_file

PATH = Path("store.db")


def sqlite_error(text: str, code: int) -> sqlite3.Error:
    error = sqlite3.DatabaseError(text)
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (sqlite_error("full", sqlite3.SQLITE_FULL), StoreWriteError, "no space left for `store.db`"),
        (sqlite_error("not a database", sqlite3.SQLITE_NOTADB), CorruptStoreError, RESTORE_HINT),
        (
            sqlite_error("malformed", sqlite3.SQLITE_CORRUPT),
            CorruptStoreError,
            "`store.db` is damaged: malformed",
        ),
        (sqlite_error("locked", sqlite3.SQLITE_BUSY), StoreOpenError, "cannot open `store.db`: locked"),
        (sqlite3.OperationalError("no code"), StoreOpenError, "cannot open `store.db`: no code"),
    ],
)
def test_an_error_of_sqlite_says_what_happened_to_which_file(error, kind, message):
    explained = explain_error(error, PATH)
    assert type(explained) is kind
    assert message in str(explained)


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(StoreOpenError, match=r"there is no directory .*absent.* for the store; create it"):
        prepare_file(tmp_path / "absent" / "store.db")


def test_a_directory_in_the_place_of_the_file_is_refused(tmp_path):
    (tmp_path / "store.db").mkdir()
    with pytest.raises(StoreOpenError, match="cannot open"):
        prepare_file(tmp_path / "store.db")


def test_a_new_file_verifies_as_it_was_created(tmp_path):
    head = prepare_file(tmp_path / "store.db")
    assert verify_file(tmp_path / "store.db") == head
    assert prepare_file(tmp_path / "store.db") == head

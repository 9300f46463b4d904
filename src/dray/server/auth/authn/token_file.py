"""Static bearer tokens from a file that an administrator writes.

Theory of operation: the format is that of Kubernetes: `token,user,uid` and maybe `"group1,group2"` on each
line. The tokens themselves are not kept: the table has keyed digests, under a random key of this process. A
token is looked up by its digest, so the time that takes says nothing about how much of a guess was right.
"""

from __future__ import annotations

import csv
import hmac
import io
import secrets
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from dray.server.auth.authn.secret_files import CredentialError, read_file
from dray.server.http.requests import AUTHENTICATED, RequestUser

MAX_TOKEN_LENGTH = 16 * 1024
"""A longer token is not looked up at all."""


class StaticTokens:
    """The users of a token file."""

    def __init__(self, users: Mapping[str, RequestUser] | None = None) -> None:
        self._key = secrets.token_bytes(32)
        self._users = {self._compute_digest(token): user for token, user in (users or {}).items()}

    def __repr__(self) -> str:
        return f"StaticTokens({len(self._users)} users)"

    @classmethod
    def from_file(cls, path: Path) -> StaticTokens:
        """Read the tokens of a file."""
        content = read_file(path)
        if content is None:
            raise CredentialError(f"there is no token file `{path}`; expected lines of token,user,uid,groups")
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise CredentialError(f"`{path}` is not UTF-8 text; expected lines of token,user,uid") from None
        users: dict[str, RequestUser] = {}
        rows = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
        try:
            for row in rows:
                _add_user(users, row, f"{path}:{rows.line_num}")
        except csv.Error as error:
            raise CredentialError(f"{path}:{rows.line_num}: {error}") from None
        return cls(users)

    def find(self, token: str) -> RequestUser | None:
        """Return the user of a token, if there is one."""
        if not token or len(token) > MAX_TOKEN_LENGTH:
            return None
        return self._users.get(self._compute_digest(token))

    def _compute_digest(self, token: str) -> bytes:
        return blake2b(token.encode(errors="surrogateescape"), key=self._key, digest_size=32).digest()


def _add_user(users: dict[str, RequestUser], row: list[str], where: str) -> None:
    """Add the user of one line; errors name the line and never the token."""
    if not row or row[0].startswith("#"):
        return
    if len(row) < 3:
        raise CredentialError(
            f"{where}: {len(row)} columns; expected token,user,uid or token,user,uid,groups"
        )
    token, name, uid = (column.strip() for column in row[:3])
    if not token or not name:
        raise CredentialError(f"{where}: the {'token' if not token else 'user'} is empty")
    if len(token) > MAX_TOKEN_LENGTH:
        raise CredentialError(f"{where}: the token is longer than {MAX_TOKEN_LENGTH} characters")
    if any(hmac.compare_digest(token.encode(), known.encode()) for known in users):
        raise CredentialError(f"{where}: the same token as on a line before")
    groups = [group.strip() for column in row[3:] for group in column.split(",")]
    named = tuple(group for group in groups if group and group != AUTHENTICATED)
    users[token] = RequestUser(name, named, uid)

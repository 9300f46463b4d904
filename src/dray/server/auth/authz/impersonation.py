"""Asking as somebody else (`kubectl --as`): who may, and who they are then.

Theory of operation: every name that is put on, user, each group, uid and each extra, is a question of its own
for the verb `impersonate`. Who may not put on one of them puts on none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from urllib.parse import unquote

from dray.server.auth.authn.authentication import authenticated
from dray.server.auth.authn.service_account_tokens import ACCOUNT_PREFIX, ACCOUNTS
from dray.server.auth.authz.authorizer import Access
from dray.server.auth.authz.policy_rules import Asked
from dray.server.http.errors import bad_request
from dray.server.http.requests import ANONYMOUS, UNAUTHENTICATED, User

_USER, _GROUP, _UID, _EXTRA = (
    "impersonate-user",
    "impersonate-group",
    "impersonate-uid",
    "impersonate-extra-",
)
_ANY = "impersonate-"
_GROUP_OF_EXTRAS = "authentication.k8s.io"


def impersonated(user: User, headers: Mapping[str, str], access: Access) -> User:
    """Who the user wants to be, if the headers say so; raises 403 if they may not be.

    Headers have lower-case names; values of a header that came several times are joined by commas.
    """
    if _ANY not in "\n".join(headers):
        return user
    wanted = headers.get(_USER)
    extra = {
        unquote(name.removeprefix(_EXTRA)): _split(value)
        for name, value in headers.items()
        if name.startswith(_EXTRA)
    }
    groups, uid = _split(headers.get(_GROUP, "")), headers.get(_UID, "")
    if not wanted:
        if groups or uid or extra:
            raise bad_request("groups, a uid or extras are impersonated, but no user; set `Impersonate-User`")
        return user
    for asked in _questions(wanted, groups, uid, extra):
        access.require(user, asked)
    return _dressed(User(wanted, groups, uid, MappingProxyType(extra)))


def _questions(
    name: str, groups: tuple[str, ...], uid: str, extra: Mapping[str, tuple[str, ...]]
) -> Iterator[Asked]:
    if name.startswith(ACCOUNT_PREFIX):
        namespace, _, account = name.removeprefix(ACCOUNT_PREFIX).partition(":")
        yield Asked("impersonate", "", "serviceaccounts", "", namespace, account)
    else:
        yield Asked("impersonate", "", "users", name=name)
    for group in groups:
        yield Asked("impersonate", "", "groups", name=group)
    if uid:
        yield Asked("impersonate", _GROUP_OF_EXTRAS, "uids", name=uid)
    for key, values in extra.items():
        for value in values:
            yield Asked("impersonate", _GROUP_OF_EXTRAS, "userextras", key, name=value)


def _dressed(user: User) -> User:
    """With the groups that come with the name."""
    if user.name == ANONYMOUS:
        return User(user.name, user.groups or (UNAUTHENTICATED,), user.uid, user.extra)
    groups = user.groups
    if user.name.startswith(ACCOUNT_PREFIX) and not groups:
        namespace = user.name.removeprefix(ACCOUNT_PREFIX).partition(":")[0]
        groups = (ACCOUNTS, f"{ACCOUNTS}:{namespace}")
    return authenticated(User(user.name, groups, user.uid, user.extra))


def _split(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())

"""Impersonation (`kubectl --as`): who may impersonate whom.

Theory of operation: the user, each group, the uid and each extra are authorized one by one with the verb
`impersonate`. Without the right to one of them, the whole request is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from urllib.parse import unquote

from dray.server.auth.authn.authentication import add_authenticated_group
from dray.server.auth.authn.service_account_tokens import SERVICE_ACCOUNT_PREFIX, SERVICE_ACCOUNTS_GROUP
from dray.server.auth.authz.authorizer import UnionAuthorizer
from dray.server.auth.authz.policy_rules import AccessAttributes
from dray.server.http.errors import new_bad_request
from dray.server.http.requests import ANONYMOUS, UNAUTHENTICATED, RequestUser

_USER, _GROUP, _UID, _EXTRA = (
    "impersonate-user",
    "impersonate-group",
    "impersonate-uid",
    "impersonate-extra-",
)
_HEADER_PREFIX = "impersonate-"
_AUTHENTICATION_GROUP = "authentication.k8s.io"


def impersonate(user: RequestUser, headers: Mapping[str, str], authorizer: UnionAuthorizer) -> RequestUser:
    """Return the user that the headers impersonate; raises 403 when that is not allowed.

    Headers have lower-case names; values of a repeated header are joined by commas.
    """
    if _HEADER_PREFIX not in "\n".join(headers):
        return user
    wanted = headers.get(_USER)
    extra = {
        unquote(name.removeprefix(_EXTRA)): _split_values(value)
        for name, value in headers.items()
        if name.startswith(_EXTRA)
    }
    groups, uid = _split_values(headers.get(_GROUP, "")), headers.get(_UID, "")
    if not wanted:
        if groups or uid or extra:
            raise new_bad_request(
                "groups, a uid or extras are impersonated, but no user; set `Impersonate-User`"
            )
        return user
    for attributes in _build_attributes(wanted, groups, uid, extra):
        authorizer.require(user, attributes)
    return _add_implied_groups(RequestUser(wanted, groups, uid, MappingProxyType(extra)))


def _build_attributes(
    name: str, groups: tuple[str, ...], uid: str, extra: Mapping[str, tuple[str, ...]]
) -> Iterator[AccessAttributes]:
    if name.startswith(SERVICE_ACCOUNT_PREFIX):
        namespace, _, account = name.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")
        yield AccessAttributes("impersonate", "", "serviceaccounts", "", namespace, account)
    else:
        yield AccessAttributes("impersonate", "", "users", name=name)
    for group in groups:
        yield AccessAttributes("impersonate", "", "groups", name=group)
    if uid:
        yield AccessAttributes("impersonate", _AUTHENTICATION_GROUP, "uids", name=uid)
    for key, values in extra.items():
        for value in values:
            yield AccessAttributes("impersonate", _AUTHENTICATION_GROUP, "userextras", key, name=value)


def _add_implied_groups(user: RequestUser) -> RequestUser:
    """Add the groups that come with the name."""
    if user.name == ANONYMOUS:
        return RequestUser(user.name, user.groups or (UNAUTHENTICATED,), user.uid, user.extra)
    groups = user.groups
    if user.name.startswith(SERVICE_ACCOUNT_PREFIX) and not groups:
        namespace = user.name.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")[0]
        groups = (SERVICE_ACCOUNTS_GROUP, f"{SERVICE_ACCOUNTS_GROUP}:{namespace}")
    return add_authenticated_group(RequestUser(user.name, groups, user.uid, user.extra))


def _split_values(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())

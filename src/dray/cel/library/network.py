"""IP addresses and networks, with the functions Kubernetes gives them.

Stricter than most parsers, as in Kubernetes: no zones, no IPv4-mapped IPv6 addresses, no leading zeros.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final, TypeAlias

from dray.cel import types as t
from dray.cel.declarations import declare_function, declare_member_overload, declare_overload
from dray.cel.equality import STRICT_TYPES
from dray.cel.faults import CelError
from dray.cel.values import TYPE_NAMES_BY_CLASS

Address: TypeAlias = IPv4Address | IPv6Address
_PREFIX = re.compile(r"(.*)/(0|[1-9][0-9]{0,2})", re.ASCII | re.DOTALL)
_BROADCAST: Final = IPv4Address("255.255.255.255")


@dataclass(frozen=True, slots=True)
class Cidr:
    """A network as it was written: bits after the prefix are kept."""

    address: Address
    bits: int

    def mask(self) -> Cidr:
        """The same network without the bits after the prefix."""
        rest = self.address.max_prefixlen - self.bits
        return Cidr(type(self.address)(int(self.address) >> rest << rest), self.bits)

    def contains_address(self, address: Address) -> bool:
        """Whether an address lies in the network."""
        return type(address) is type(self.address) and Cidr(address, self.bits).mask() == self.mask()

    @property
    def octets(self) -> int:
        """How many bytes the prefix has."""
        return -(-self.bits // 8)

    def __str__(self) -> str:
        return f"{self.address}/{self.bits}"


TYPE_NAMES_BY_CLASS.update({IPv4Address: t.IP.name, IPv6Address: t.IP.name, Cidr: t.CIDR.name})
STRICT_TYPES.update({IPv4Address: "ip", IPv6Address: "ip", Cidr: "cidr"})


def _parse_ip(text: str) -> Address:
    shown = text[:100]
    if "%" in text:
        raise CelError(f'IP address "{shown}" with zone value is not allowed')
    try:
        address = IPv6Address(text) if ":" in text else IPv4Address(text)
    except AddressValueError:
        raise CelError(f'IP Address "{shown}" parse error during conversion from string') from None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        raise CelError(f'IPv4-mapped IPv6 address "{shown}" is not allowed')
    return address


def _parse_cidr(text: str) -> Cidr:
    match = _PREFIX.fullmatch(text)
    try:
        if match is not None:
            address = _parse_ip(match[1])
            if int(match[2]) <= address.max_prefixlen:
                return Cidr(address, int(match[2]))
    except CelError:
        pass
    raise CelError("network address parse error during conversion from string")


def _make_parse_test(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def answer(text: str) -> bool:
        try:
            parse(text)
        except CelError:
            return False
        return True

    return answer


def _is_link_local_multicast(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return int(address) >> 8 == 0xE00000
    return (int(address) >> 112) & 0xFF0F == 0xFF02


def _is_link_local_unicast(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return int(address) >> 16 == 0xA9FE
    return int(address) >> 118 == 0x3FA


def _is_global_unicast(address: Address) -> bool:
    special = address.is_unspecified or address.is_loopback or address.is_multicast
    return not special and address != _BROADCAST and not _is_link_local_unicast(address)


def _contains_cidr_text(network: Cidr, text: str) -> bool:
    return _contains_cidr(network, _parse_cidr(text))


def _contains_cidr(network: Cidr, other: Cidr) -> bool:
    return network.bits <= other.bits and network.contains_address(other.address)


LIBRARY: Final = (
    declare_function(
        "ip",
        declare_overload("string_to_ip", (t.STRING,), t.IP, _parse_ip),
        declare_member_overload("cidr_ip", (t.CIDR,), t.IP, lambda network: network.address),
    ),
    declare_function("isIP", declare_overload("is_ip", (t.STRING,), t.BOOL, _make_parse_test(_parse_ip))),
    declare_function(
        "ip.isCanonical",
        declare_overload("ip_is_canonical", (t.STRING,), t.BOOL, lambda text: str(_parse_ip(text)) == text),
    ),
    declare_function(
        "family", declare_member_overload("ip_family", (t.IP,), t.INT, lambda address: address.version)
    ),
    declare_function(
        "isUnspecified",
        declare_member_overload("ip_is_unspecified", (t.IP,), t.BOOL, lambda one: one.is_unspecified),
    ),
    declare_function(
        "isLoopback", declare_member_overload("ip_is_loopback", (t.IP,), t.BOOL, lambda one: one.is_loopback)
    ),
    declare_function(
        "isLinkLocalMulticast",
        declare_member_overload("ip_is_link_local_multicast", (t.IP,), t.BOOL, _is_link_local_multicast),
    ),
    declare_function(
        "isLinkLocalUnicast",
        declare_member_overload("ip_is_link_local_unicast", (t.IP,), t.BOOL, _is_link_local_unicast),
    ),
    declare_function(
        "isGlobalUnicast",
        declare_member_overload("ip_is_global_unicast", (t.IP,), t.BOOL, _is_global_unicast),
    ),
    declare_function("cidr", declare_overload("string_to_cidr", (t.STRING,), t.CIDR, _parse_cidr)),
    declare_function(
        "isCIDR", declare_overload("is_cidr", (t.STRING,), t.BOOL, _make_parse_test(_parse_cidr))
    ),
    declare_function(
        "containsIP",
        declare_member_overload(
            "cidr_contains_ip_string",
            (t.CIDR, t.STRING),
            t.BOOL,
            lambda one, text: one.contains_address(_parse_ip(text)),
        ),
        declare_member_overload("cidr_contains_ip_ip", (t.CIDR, t.IP), t.BOOL, Cidr.contains_address),
    ),
    declare_function(
        "containsCIDR",
        declare_member_overload("cidr_contains_cidr_string", (t.CIDR, t.STRING), t.BOOL, _contains_cidr_text),
        declare_member_overload("cidr_contains_cidr", (t.CIDR, t.CIDR), t.BOOL, _contains_cidr),
    ),
    declare_function(
        "prefixLength",
        declare_member_overload("cidr_prefix_length", (t.CIDR,), t.INT, lambda network: network.bits),
    ),
    declare_function("masked", declare_member_overload("cidr_masked", (t.CIDR,), t.CIDR, Cidr.mask)),
    declare_function(
        "string",
        declare_overload("ip_to_string", (t.IP,), t.STRING, str),
        declare_overload("cidr_to_string", (t.CIDR,), t.STRING, str),
    ),
)

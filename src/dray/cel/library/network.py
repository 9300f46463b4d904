"""IP addresses and networks, with the functions Kubernetes gives them.

Stricter than most readers, as in Kubernetes: no zones, no IPv4 addresses in IPv6 clothes, no leading zeros.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final, TypeAlias

from dray.cel import types as t
from dray.cel.declarations import free, function, member
from dray.cel.equality import STRICT
from dray.cel.faults import CelError
from dray.cel.values import NAMES

Address: TypeAlias = IPv4Address | IPv6Address
_PREFIX = re.compile(r"(.*)/(0|[1-9][0-9]{0,2})", re.ASCII | re.DOTALL)
_EVERYONE: Final = IPv4Address("255.255.255.255")


@dataclass(frozen=True, slots=True)
class Cidr:
    """A network as it was written: bits after the prefix are kept."""

    address: Address
    bits: int

    def masked(self) -> Cidr:
        """The same network without the bits after the prefix."""
        rest = self.address.max_prefixlen - self.bits
        return Cidr(type(self.address)(int(self.address) >> rest << rest), self.bits)

    def holds(self, address: Address) -> bool:
        """Whether an address lies in the network."""
        return type(address) is type(self.address) and Cidr(address, self.bits).masked() == self.masked()

    @property
    def octets(self) -> int:
        """How many bytes the prefix has."""
        return -(-self.bits // 8)

    def __str__(self) -> str:
        return f"{self.address}/{self.bits}"


NAMES.update({IPv4Address: t.IP.name, IPv6Address: t.IP.name, Cidr: t.CIDR.name})
STRICT.update({IPv4Address: "ip", IPv6Address: "ip", Cidr: "cidr"})


def _ip(text: str) -> Address:
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


def _cidr(text: str) -> Cidr:
    match = _PREFIX.fullmatch(text)
    try:
        if match is not None:
            address = _ip(match[1])
            if int(match[2]) <= address.max_prefixlen:
                return Cidr(address, int(match[2]))
    except CelError:
        pass
    raise CelError("network address parse error during conversion from string")


def _reads(read: Callable[[str], object]) -> Callable[[str], bool]:
    def answer(text: str) -> bool:
        try:
            read(text)
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
    return not special and address != _EVERYONE and not _is_link_local_unicast(address)


def _holds_written(network: Cidr, text: str) -> bool:
    return _holds_network(network, _cidr(text))


def _holds_network(network: Cidr, other: Cidr) -> bool:
    return network.bits <= other.bits and network.holds(other.address)


LIBRARY: Final = (
    function(
        "ip",
        free("string_to_ip", (t.STRING,), t.IP, _ip),
        member("cidr_ip", (t.CIDR,), t.IP, lambda network: network.address),
    ),
    function("isIP", free("is_ip", (t.STRING,), t.BOOL, _reads(_ip))),
    function(
        "ip.isCanonical", free("ip_is_canonical", (t.STRING,), t.BOOL, lambda text: str(_ip(text)) == text)
    ),
    function("family", member("ip_family", (t.IP,), t.INT, lambda address: address.version)),
    function("isUnspecified", member("ip_is_unspecified", (t.IP,), t.BOOL, lambda one: one.is_unspecified)),
    function("isLoopback", member("ip_is_loopback", (t.IP,), t.BOOL, lambda one: one.is_loopback)),
    function(
        "isLinkLocalMulticast",
        member("ip_is_link_local_multicast", (t.IP,), t.BOOL, _is_link_local_multicast),
    ),
    function(
        "isLinkLocalUnicast", member("ip_is_link_local_unicast", (t.IP,), t.BOOL, _is_link_local_unicast)
    ),
    function("isGlobalUnicast", member("ip_is_global_unicast", (t.IP,), t.BOOL, _is_global_unicast)),
    function("cidr", free("string_to_cidr", (t.STRING,), t.CIDR, _cidr)),
    function("isCIDR", free("is_cidr", (t.STRING,), t.BOOL, _reads(_cidr))),
    function(
        "containsIP",
        member("cidr_contains_ip_string", (t.CIDR, t.STRING), t.BOOL, lambda one, text: one.holds(_ip(text))),
        member("cidr_contains_ip_ip", (t.CIDR, t.IP), t.BOOL, Cidr.holds),
    ),
    function(
        "containsCIDR",
        member("cidr_contains_cidr_string", (t.CIDR, t.STRING), t.BOOL, _holds_written),
        member("cidr_contains_cidr", (t.CIDR, t.CIDR), t.BOOL, _holds_network),
    ),
    function("prefixLength", member("cidr_prefix_length", (t.CIDR,), t.INT, lambda network: network.bits)),
    function("masked", member("cidr_masked", (t.CIDR,), t.CIDR, Cidr.masked)),
    function(
        "string",
        free("ip_to_string", (t.IP,), t.STRING, str),
        free("cidr_to_string", (t.CIDR,), t.STRING, str),
    ),
)

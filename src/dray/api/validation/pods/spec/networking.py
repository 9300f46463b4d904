"""Validation of the network of a pod: DNS, host names, addresses, ports of the node."""

from __future__ import annotations

import re
from typing import Final

from dray.api.fields import FieldPath, duplicate, forbidden, invalid, required, too_long
from dray.api.validation.field_rules import FieldErrors, report_name_faults
from dray.api.validation.pods.document_fields import (
    Document,
    find_mapping,
    find_text,
    get_list,
    get_number,
    get_text,
    get_texts,
    is_true,
    iterate_objects,
)
from dray.api.validation.pods.value_rules import (
    validate_choice,
    validate_ip_address,
    validate_optional_name,
    validate_port_name,
    validate_port_number,
)
from dray.values.names import check_dns_label, check_dns_subdomain, count_bytes

_DNS_POLICIES: Final = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
_MAX_NAMESERVERS: Final = 3
_MAX_SEARCHES: Final = 32
_MAX_SEARCH_CHARACTERS: Final = 2048
_MAX_HOSTNAME: Final = 64
_SEARCH_LABEL: Final = "[a-z0-9_]([-_a-z0-9]*[a-z0-9_])?"
_SEARCH = re.compile(rf"{_SEARCH_LABEL}(\.{_SEARCH_LABEL})*")


def validate_dns_policy(spec: Document, path: FieldPath) -> FieldErrors:
    """Check where a pod resolves names."""
    return validate_choice(spec, "dnsPolicy", _DNS_POLICIES, path)


def validate_dns_config(spec: Document, path: FieldPath) -> FieldErrors:
    """Check the name servers, search domains and options of a pod."""
    config, place = find_mapping(spec, "dnsConfig"), path.child("dnsConfig")
    if get_text(spec, "dnsPolicy") == "None":
        if config is None:
            yield required(place, "is needed for the policy `None`")
            return
        if not config.get("nameservers"):
            yield required(place.child("nameservers"), "at least one is needed for the policy `None`")
            return
    if config is not None:
        yield from _validate_dns_servers(config, place)
        yield from _validate_searches(get_texts(config, "searches"), place.child("searches"))
        for position, option in iterate_objects(config, "options"):
            if not get_text(option, "name"):
                yield required(place.child("options").index(position), "the name must not be empty")


def _validate_dns_servers(config: Document, path: FieldPath) -> FieldErrors:
    servers, place = get_texts(config, "nameservers"), path.child("nameservers")
    if len(servers) > _MAX_NAMESERVERS:
        yield invalid(place, servers, f"must not have more than {_MAX_NAMESERVERS} items")
    for position, server in enumerate(servers):
        yield from validate_ip_address(server, place.index(position))


def _validate_searches(searches: list[str], path: FieldPath) -> FieldErrors:
    if len(searches) > _MAX_SEARCHES:
        yield invalid(path, searches, f"must not have more than {_MAX_SEARCHES} items")
    if len(" ".join(searches)) > _MAX_SEARCH_CHARACTERS:
        text = f"must not have more than {_MAX_SEARCH_CHARACTERS} characters, with spaces between the items"
        yield invalid(path, searches, text)
    for position, search in enumerate(searches):
        domain = search.removesuffix(".")
        if search == ".":
            continue
        if len(domain) > 253:
            yield invalid(path.index(position), domain, "must be no more than 253 bytes")
        if not _SEARCH.fullmatch(domain):
            text = "must be a domain of lower case letters, digits, '-', '_' and '.'"
            yield invalid(path.index(position), domain, text)


# --- names and addresses ---


def validate_host_names(spec: Document, path: FieldPath) -> FieldErrors:
    """Check the names by which a pod knows itself."""
    for field in ("hostname", "subdomain"):
        yield from validate_optional_name(spec, field, check_dns_label, path)


def validate_hostname_override(spec: Document, path: FieldPath) -> FieldErrors:
    """Check the name that replaces all others inside of a pod."""
    name, place = find_text(spec, "hostnameOverride"), path.child("hostnameOverride")
    if name is None:
        return
    for field in ("setHostnameAsFQDN", "hostNetwork"):
        if is_true(spec, field):
            yield forbidden(place, f"may not be set when `{field}` is true")
    if count_bytes(name) > _MAX_HOSTNAME:
        yield too_long(place, _MAX_HOSTNAME)
    yield from report_name_faults(check_dns_subdomain(name), place)


def validate_host_aliases(spec: Document, path: FieldPath) -> FieldErrors:
    """Check the entries for the hosts file of a pod."""
    for position, alias in iterate_objects(spec, "hostAliases"):
        place = path.child("hostAliases").index(position)
        yield from validate_ip_address(get_text(alias, "ip"), place.child("ip"))
        for index, name in enumerate(get_texts(alias, "hostnames")):
            yield from report_name_faults(check_dns_subdomain(name), place.child("hostnames").index(index))


# --- ports ---

_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")


def validate_ports(container: Document, path: FieldPath) -> FieldErrors:
    """Check the ports of a container, each by itself and their names against each other."""
    names: set[str] = set()
    for position, port in iterate_objects(container, "ports"):
        place = path.index(position)
        name = get_text(port, "name")
        if name:
            faults = list(validate_port_name(name, place.child("name")))
            yield from faults
            if not faults and name in names:
                yield duplicate(place.child("name"), name)
            if not faults:
                names.add(name)
        number, host_port = get_number(port, "containerPort"), get_number(port, "hostPort")
        if not number:
            yield required(place.child("containerPort"))
        else:
            yield from validate_port_number(number, place.child("containerPort"))
        if host_port:
            yield from validate_port_number(host_port, place.child("hostPort"))
        yield from validate_choice(port, "protocol", _PROTOCOLS, place)


def validate_host_ports(containers: list[tuple[FieldPath, Document]]) -> FieldErrors:
    """Check that containers do not want the same port of the node."""
    used: set[str] = set()
    for path, container in containers:
        for position, port in iterate_objects(container, "ports"):
            number = get_number(port, "hostPort")
            if not number:
                continue
            key = f"{get_text(port, 'protocol') or 'TCP'}/{get_text(port, 'hostIP')}/{number}"
            if key in used:
                yield duplicate(path.child("ports").index(position).child("hostPort"), key)
            used.add(key)


def validate_ports_on_host_network(spec: Document, path: FieldPath) -> FieldErrors:
    """Check that ports are the same inside and outside, when the pod has the network of the node."""
    if not is_true(spec, "hostNetwork"):
        return
    for index, container in iterate_objects(spec, "containers"):
        for position, port in iterate_objects(container, "ports"):
            number = get_number(port, "hostPort")
            if number and number != get_number(port, "containerPort"):
                place = path.child("containers").index(index).child("ports").index(position)
                yield invalid(place.child("hostPort"), number, "must be `containerPort` with `hostNetwork`")


def has_ports(container: Document) -> bool:
    """Whether a container has any port."""
    return bool(get_list(container, "ports"))

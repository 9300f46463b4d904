"""Validation of Nodes: taints, pod CIDRs, provider, resources and addresses."""

from __future__ import annotations

import ipaddress
from typing import Any, Final

from dray.api.fields import ROOT, FieldPath, duplicate, forbidden, invalid, not_supported, required
from dray.api.validation.field_rules import FieldErrors, report_name_faults
from dray.api.validation.pods.document_fields import (
    Document,
    get_mapping,
    get_objects,
    get_text,
    get_texts,
    read_quantities,
)
from dray.api.validation.pods.spec.resources import validate_amount
from dray.api.validation.pods.spec.scheduling import TAINT_EFFECTS
from dray.values.names import check_label_value, check_qualified_name

_TAINTS: Final = ROOT.child("metadata").child("taints")
"""Where Kubernetes looks for the taints of a node when it reports errors."""
_SPEC, _STATUS = ROOT.child("spec"), ROOT.child("status")
_CIDRS: Final = _SPEC.child("podCIDRs")


def validate_node(node: Document) -> FieldErrors:
    """Check a new node."""
    spec = get_mapping(node, "spec")
    yield from _validate_taints(spec)
    yield from _validate_resources(get_mapping(node, "status"))
    yield from _validate_cidrs(_list_cidrs(spec))


def validate_changed_node(new: Document, old: Document) -> FieldErrors:
    """Check a change of a node: what the cloud or the network gave it stays."""
    yield from validate_changed_node_status(new, old)
    spec, stored = get_mapping(new, "spec"), get_mapping(old, "spec")
    yield from _validate_taints(spec)
    cidrs, before = _list_cidrs(spec), _list_cidrs(stored)
    yield from _validate_cidrs(cidrs)
    if before and cidrs != before:
        yield forbidden(_CIDRS, "a node keeps its pod CIDRs")
    provider, assigned = get_text(spec, "providerID"), get_text(stored, "providerID")
    if assigned and provider != assigned:
        yield invalid(_SPEC.child("providerID"), provider, "field cannot be changed or cleared once set")


def validate_changed_node_status(new: Document, old: Document) -> FieldErrors:
    """Check a change of a node's status."""
    status = get_mapping(new, "status")
    if status == get_mapping(old, "status"):
        return
    yield from _validate_resources(status)
    seen: list[tuple[Any, Any]] = []
    for position, address in enumerate(get_objects(status, "addresses")):
        identity = (address.get("type"), address.get("address"))
        if identity in seen:
            yield duplicate(_STATUS.child("addresses").index(position), address)
        seen.append(identity)


def _list_cidrs(spec: Document) -> list[str]:
    """The pod CIDRs of a node; the single one is the first of the list."""
    first, cidrs = get_text(spec, "podCIDR"), get_texts(spec, "podCIDRs")
    return [first, *cidrs[1:]] if first else cidrs


def _validate_cidrs(cidrs: list[str]) -> FieldErrors:
    families = []
    for position, text in enumerate(cidrs):
        try:
            families.append(ipaddress.ip_network(text, strict=False).version)
            if "/" not in text:
                raise ValueError
        except ValueError:
            yield invalid(_CIDRS.index(position), text, "must be a CIDR, for example `10.9.8.0/24`")
    if len(families) == len(cidrs) and len(set(families)) < len(families):
        yield invalid(_CIDRS, cidrs, "may specify no more than one CIDR for each IP family")


def _validate_taints(spec: Document) -> FieldErrors:
    seen = set()
    for position, taint in enumerate(get_objects(spec, "taints")):
        path = _TAINTS.index(position)
        yield from _validate_taint(taint, path)
        identity = (get_text(taint, "key"), get_text(taint, "effect"))
        if identity in seen:
            yield duplicate(path, taint)
        seen.add(identity)


def _validate_taint(taint: Document, path: FieldPath) -> FieldErrors:
    yield from report_name_faults(check_qualified_name(get_text(taint, "key")), path.child("key"))
    yield from report_name_faults(check_label_value(get_text(taint, "value")), path.child("value"))
    effect = get_text(taint, "effect")
    if not effect:
        yield required(path.child("effect"))
    elif effect not in TAINT_EFFECTS:
        yield not_supported(path.child("effect"), effect, TAINT_EFFECTS)


def _validate_resources(status: Document) -> FieldErrors:
    capacity, allocatable = get_mapping(status, "capacity"), get_mapping(status, "allocatable")
    for field in ("capacity", "allocatable"):
        # What is allocatable is the whole capacity, unless a node says otherwise.
        source = "capacity" if field == "allocatable" and capacity and not allocatable else field
        for name, amount in read_quantities(status, source).items():
            yield from validate_amount(name, amount, _STATUS.child(field).child(name))

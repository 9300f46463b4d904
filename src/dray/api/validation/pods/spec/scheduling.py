"""Validation of where and when a pod may run: tolerations, gates, spreading, priority, names of classes."""

from __future__ import annotations

from typing import Final

from dray.api.fields import FieldPath, duplicate, invalid, not_supported, required
from dray.api.validation.field_rules import FieldErrors, report_name_faults
from dray.api.validation.pods.document_fields import (
    Document,
    find_mapping,
    find_number,
    find_text,
    get_list,
    get_number,
    get_text,
    iterate_objects,
)
from dray.api.validation.pods.label_selectors import validate_label_keys, validate_label_selector
from dray.api.validation.pods.value_rules import (
    MAX_INT32,
    POSITIVE,
    validate_given_choice,
    validate_optional_name,
    validate_range,
)
from dray.values.names import check_dns_subdomain, check_label_value, check_qualified_name

TAINT_EFFECTS: Final = ("NoExecute", "NoSchedule", "PreferNoSchedule")
_OPERATORS: Final = ("Equal", "Exists")
_COMPARISONS: Final = ("Lt", "Gt")


def validate_tolerations(spec: Document, path: FieldPath) -> FieldErrors:
    """Check the tolerations of a pod."""
    return validate_toleration_list(spec, path.child("tolerations"))


def validate_toleration_list(holder: Document, path: FieldPath) -> FieldErrors:
    """Check the field `tolerations` of an object; the path is that of the list."""
    for position, toleration in iterate_objects(holder, "tolerations"):
        yield from _validate_toleration(toleration, path.index(position))


def _validate_toleration(toleration: Document, path: FieldPath) -> FieldErrors:
    key, operator = get_text(toleration, "key"), get_text(toleration, "operator")
    effect, value = get_text(toleration, "effect"), get_text(toleration, "value")
    if key and (faults := check_qualified_name(key)):
        yield from report_name_faults(faults, path.child("key"))
    elif not key and operator != "Exists":
        text = "must be `Exists` without a `key`, which tolerates every taint"
        yield invalid(path.child("operator"), operator, text)
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        yield invalid(path.child("effect"), effect, "must be `NoExecute` when `tolerationSeconds` is set")
    if operator == "Exists":
        if value:
            yield invalid(path.child("operator"), value, "`Exists` takes no `value`")
    elif operator in ("Equal", ""):
        if faults := check_label_value(value):
            yield invalid(path.child("operator"), value, "; ".join(fault.text for fault in faults))
    else:
        known = (*_OPERATORS, *_COMPARISONS) if operator in _COMPARISONS else _OPERATORS
        yield not_supported(path.child("operator"), operator, known)
    if effect and effect not in TAINT_EFFECTS:
        yield not_supported(path.child("effect"), effect, TAINT_EFFECTS)


# --- gates ---


def validate_gates(spec: Document, path: FieldPath) -> FieldErrors:
    """Check the conditions that a pod waits for before it is scheduled, and before it is ready."""
    for position, gate in iterate_objects(spec, "readinessGates"):
        place = path.child("readinessGates").index(position).child("conditionType")
        yield from report_name_faults(check_qualified_name(get_text(gate, "conditionType")), place)
    seen: set[str] = set()
    for position, gate in iterate_objects(spec, "schedulingGates"):
        name, place = get_text(gate, "name"), path.child("schedulingGates").index(position)
        yield from report_name_faults(check_qualified_name(name), place)
        if name in seen:
            yield duplicate(place, name)
        seen.add(name)


# --- spreading ---

_ACTIONS: Final = ("DoNotSchedule", "ScheduleAnyway")
_INCLUSIONS: Final = ("Honor", "Ignore")


def validate_spreading(spec: Document, path: FieldPath) -> FieldErrors:
    """Check the constraints by which pods are spread over parts of the cluster."""
    constraints = list(iterate_objects(spec, "topologySpreadConstraints"))
    pairs = [(get_text(item, "topologyKey"), get_text(item, "whenUnsatisfiable")) for _, item in constraints]
    for index, (position, constraint) in enumerate(constraints):
        place = path.child("topologySpreadConstraints").index(position)
        yield from _validate_constraint(constraint, place)
        if pairs[index] in pairs[index + 1 :]:
            where = place.child("{topologyKey, whenUnsatisfiable}")
            yield duplicate(where, "{" + ", ".join(pairs[index]) + "}")
        yield from _validate_spread_members(constraint, place)


def _validate_constraint(constraint: Document, path: FieldPath) -> FieldErrors:
    skew = get_number(constraint, "maxSkew")
    if skew <= 0:
        yield invalid(path.child("maxSkew"), skew, POSITIVE)
    if not get_text(constraint, "topologyKey"):
        yield required(path.child("topologyKey"))
    action = get_text(constraint, "whenUnsatisfiable")
    if action not in _ACTIONS:
        yield not_supported(path.child("whenUnsatisfiable"), action, _ACTIONS)


def _validate_spread_members(constraint: Document, path: FieldPath) -> FieldErrors:
    least = find_number(constraint, "minDomains")
    if least is not None:
        if least <= 0:
            yield invalid(path.child("minDomains"), least, POSITIVE)
        if get_text(constraint, "whenUnsatisfiable") != "DoNotSchedule":
            yield invalid(path.child("minDomains"), least, "needs `whenUnsatisfiable: DoNotSchedule`")
    for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        yield from validate_given_choice(constraint, field, _INCLUSIONS, path)
    selector = find_mapping(constraint, "labelSelector")
    if get_list(constraint, "matchLabelKeys"):
        yield from validate_label_keys(constraint, path)
    if selector is not None:
        yield from validate_label_selector(selector, path.child("labelSelector"))


# --- names, deadlines, priority ---


def validate_references(spec: Document, path: FieldPath) -> FieldErrors:
    """Check the service account and the node of a pod."""
    yield from validate_optional_name(spec, "serviceAccountName", check_dns_subdomain, path)
    account, alias = get_text(spec, "serviceAccountName"), get_text(spec, "serviceAccount")
    if alias and alias != account:
        text = f"must be the same as `serviceAccountName`, {account}"
        yield invalid(path.child("deprecatedServiceAccount"), alias, text)
    yield from validate_optional_name(spec, "nodeName", check_dns_subdomain, path)
    deadline = find_number(spec, "activeDeadlineSeconds")
    if deadline is not None:
        yield from validate_range(deadline, 1, MAX_INT32, path.child("activeDeadlineSeconds"))


def validate_classes(spec: Document, path: FieldPath) -> FieldErrors:
    """Check the names of the priority class and the runtime class, and the preemption policy."""
    yield from validate_optional_name(spec, "priorityClassName", check_dns_subdomain, path)
    runtime = find_text(spec, "runtimeClassName")
    if runtime is not None and (faults := check_dns_subdomain(runtime)):
        yield from report_name_faults(faults, path.child("runtimeClassName"))
    policy = find_text(spec, "preemptionPolicy")
    if policy == "":
        yield required(path.child("preemptionPolicy"))
    else:
        yield from validate_given_choice(spec, "preemptionPolicy", ("Never", "PreemptLowerPriority"), path)


def validate_scheduling_group(spec: Document, path: FieldPath) -> FieldErrors:
    """Check the group with which a pod is scheduled."""
    group = find_mapping(spec, "schedulingGroup")
    if group is None:
        return
    name, place = find_text(group, "podGroupName"), path.child("schedulingGroup", "podGroupName")
    if name is None:
        yield invalid(place, None, "must be set")
    else:
        yield from report_name_faults(check_dns_subdomain(name), place)

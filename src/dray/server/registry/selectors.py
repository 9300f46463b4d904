"""Label and field selectors of lists and watches.

The strategy of a kind says which fields can be selected; `dray.server.objects.field_values` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dray.api.kinds import Kind
from dray.server.http.errors import new_bad_request
from dray.server.objects.field_values import read_field
from dray.server.objects.stored_object import StoredObject, get_storage_kind
from dray.server.registry.strategies import INVOLVED_OBJECT_FIELDS, get_strategy
from dray.server.watch.field_index import INDEXED_FIELDS, LABELS
from dray.store.watch_broadcaster import RequiredField
from dray.values.label_selectors import LabelSelectorError, ParsedLabelSelector, SelectorOperator

_EVENT_FIELD_ALIASES: Mapping[str, str] = MappingProxyType(
    {f"regarding.{name}": f"involvedObject.{name}" for name in INVOLVED_OBJECT_FIELDS}
    | {"reportingController": "reportingComponent"}
)
"""Fields of core events by their names in `events.k8s.io`."""


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """A field that must, or must not, have a value."""

    field: str
    value: str
    equal: bool = True


@dataclass(frozen=True, slots=True)
class ListSelector:
    """The label and field selector of a list or watch."""

    labels: ParsedLabelSelector
    fields: tuple[FieldRequirement, ...] = ()

    @property
    def is_everything(self) -> bool:
        return not self.labels.requirements and not self.fields

    def get_exact_value(self, field: str) -> str | None:
        """The value that the selector requires of a field, if it requires exactly one."""
        return next((each.value for each in self.fields if each.field == field and each.equal), None)

    @property
    def required_field(self) -> RequiredField | None:
        """A field, and the value that every selected object has in it; None if the selector requires none.

        The server finds objects and watches by it. Of several, the one that the fewest objects should have.
        """
        fields = [each for each in self.fields if each.equal]
        if fields:
            best = min(fields, key=_rank_requirement)
            return RequiredField(best.field, best.value)
        for label in self.labels.requirements:
            if label.operator is SelectorOperator.IN and len(label.values) == 1:
                return RequiredField(LABELS, f"{label.key}={label.values[0]}")
        return None

    def matches(self, stored: StoredObject) -> bool:
        """Whether the selector matches an object."""
        return self.matches_fields(stored.key, stored.value) and (
            not self.labels.requirements or self.labels.matches(stored.metadata.labels)
        )

    def matches_fields(self, key: bytes, value: bytes) -> bool:
        """Whether the field selector matches the object with this key and value.

        Hundreds of nodes watch their own pods, so most objects do not match, and this must be quick.
        """
        return all((read_field(each.field, key, value) == each.value) == each.equal for each in self.fields)


def _rank_requirement(requirement: FieldRequirement) -> int:
    if requirement.field == "metadata.name":
        return 0
    return 1 if requirement.field in INDEXED_FIELDS else 2


EVERYTHING = ListSelector(ParsedLabelSelector())


def parse_selectors(kind: Kind, query: Mapping[str, str]) -> ListSelector:
    """Parse the selectors of a query; raises an `ApiStatusError` that names the part it cannot parse."""
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    if not labels and not fields:
        return EVERYTHING
    try:
        label_selector = ParsedLabelSelector.parse(labels)
    except LabelSelectorError as error:
        raise new_bad_request(f'unable to parse requirement: labelSelector "{labels}": {error}') from None
    return ListSelector(label_selector, _parse_field_selector(kind, fields))


def _parse_field_selector(kind: Kind, text: str) -> tuple[FieldRequirement, ...]:
    requirements = []
    for part in filter(None, text.split(",")):
        for operator, equal in (("!=", False), ("==", True), ("=", True)):
            field, found, value = part.partition(operator)
            if found:
                name = _resolve_field(kind, field.strip())
                requirements.append(FieldRequirement(name, value.strip(), equal))
                break
        else:
            raise new_bad_request(
                f'invalid field selector "{text}": expected for example `metadata.name=value`, got `{part}`'
            )
    return tuple(requirements)


def _resolve_field(kind: Kind, field: str) -> str:
    name = _EVENT_FIELD_ALIASES.get(field, field) if get_storage_kind(kind) is not kind else field
    supported = ("metadata.name", "metadata.namespace", *get_strategy(kind).selectable_fields)
    if name not in supported:
        known = ", ".join(supported if kind.namespaced else supported[:1] + supported[2:])
        raise new_bad_request(f'"{field}" is not a known field selector: only {known}')
    return name

"""The reference page of defaults: what a field gets that a client leaves out, for every kind."""

from __future__ import annotations

from collections.abc import Iterable

from dray.api.json_text import write_json
from dray.api.kinds import get_kind, get_kind_by_type
from dray.api.strategies.defaults import DEFAULTS, NOW, FieldDefault
from dray.api.strategies.open_defaults import OPEN_DEFAULTS, DefaultsRow, DocumentRewrite
from dray.api.strategies.open_defaults.pods import POD_TEMPLATE_ROWS
from dray.cli.commands.development.reference_layout import render_page, render_table

_TEMPLATE_PLACES = ("spec.template", "spec.jobTemplate.spec.template", "template")
_TEMPLATE_LINE = "the [defaults of a pod template](#pod-templates)"


def render_defaults() -> str:
    """Render the defaults of every kind that has some."""
    closed = [
        (get_kind_by_type(cls).qualified_name, [_format_struct_row(row) for row in rows])
        for cls, rows in DEFAULTS.items()
    ]
    open_kinds = [
        (get_kind(*names).qualified_name, list(_format_rows(rows))) for names, rows in OPEN_DEFAULTS.items()
    ]
    templates = ("Pod templates", [_format_row(row) for row in POD_TEMPLATE_ROWS])
    return render_page(
        "Defaults",
        "A field that a client leaves out of an object gets this value on every write, as in Kubernetes. "
        "`[]` is every item of a list. Admission adds more to pods: a service account, tolerations and the "
        "values of the priority class. Kinds that are not listed have no defaults.",
        *(
            f"## {title}\n\n" + render_table(["field", "default", "when"], rows)
            for title, rows in [templates, *sorted(open_kinds + closed)]
        ),
    )


def _format_struct_row(row: FieldDefault) -> list[str]:
    return [f"`{row.field}`", "the time" if row.value is NOW else f"`{row.value}`", row.about]


def _format_rows(rows: Iterable[DefaultsRow]) -> Iterable[list[str]]:
    """Yield the rows of a kind; those of a pod template in it are one line."""
    of_templates = {
        (type(row), _name_place(row.prefix(place))): place
        for place in _TEMPLATE_PLACES
        for row in POD_TEMPLATE_ROWS
    }
    named = set()
    for row in rows:
        place = of_templates.get((type(row), _name_place(row)))
        if place is None:
            yield _format_row(row)
        elif place not in named:
            named.add(place)
            yield [f"`{place}`", _TEMPLATE_LINE, "always"]


def _name_place(row: DefaultsRow) -> str:
    return row.holder if isinstance(row, DocumentRewrite) else row.field


def _format_row(row: DefaultsRow) -> list[str]:
    if isinstance(row, DocumentRewrite):
        fields = (f"{row.holder}.{name}" if row.holder else name for name in row.fields)
        return [", ".join(f"`{field}`" for field in fields), row.about, "always"]
    value = row.value if isinstance(row.value, str) else write_json(row.value).decode()
    return [f"`{row.field}`", f"`{value}`" if value else "an empty string", row.about]

"""The reference pages, generated from the tables that the code itself uses.

Rules for this file: no fact is written here, only the layout of facts; a page changes when its table changes.
Pages are Markdown, and the same tables always give the same text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import click
from msgspec import inspect

from dray.api.field_docs import get_field_docs
from dray.api.kinds import KINDS, Kind
from dray.api.limits import LIMITS
from dray.api.strategies.defaults import DEFAULTS, NOW
from dray.api.strategies.gated_fields import GATED_FIELDS
from dray.cli.commands.development.reference_defaults import render_defaults
from dray.cli.commands.development.reference_layout import format_code, render_page, render_table
from dray.gates import GATES, GateSet
from dray.lint import RULES

if TYPE_CHECKING:
    from dray.driver.conformance.check_table import ConformanceCheck
    from dray.telemetry.metrics import MetricDefinition


def render_gates() -> str:
    """Render every gate, and the fields behind it."""
    rows = [
        [f"`{gate.name}`", gate.stage.value, "on" if on else "off", format_code(gate.requires), gate.about]
        for gate, on in GateSet.from_defaults()
    ]
    fields = [
        [f"`{gate}`", kind.partition(".")[0], f"`{field}`"]
        for gate in GATES
        for kind, patterns in GATED_FIELDS.get(gate, {}).items()
        for field in patterns
    ]
    return render_page(
        "Feature gates",
        "Switch them with `--feature-gates A=true,B=false`; `AllAlpha` and `AllBeta` stand for whole stages.",
        render_table(["gate", "stage", "default", "requires", "about"], rows),
        "## Fields behind gates",
        "With the gate off, these are dropped from new objects. `[]` is every item of a list, `{}` every "
        "entry of a map. The kinds of `cdi.k8s.io` stand behind `DRAControlPlaneController` as a whole.",
        render_table(["gate", "kind", "field"], fields),
    )


def render_limits() -> str:
    """Render every limit."""
    rows = [[limit.subject, f"{limit.maximum:,}", limit.unit] for limit in LIMITS]
    return render_page(
        "Limits", "An object beyond one of these is refused.", render_table(["where", "at most", "of"], rows)
    )


def render_server_limits() -> str:
    """Render every limit of the server."""
    from dray.server.http.flow_control import PRIORITY_LEVELS
    from dray.server.http.limits import FIXED_LIMITS, list_rows

    classes = [[row.name, row.description, f"{row.share:.0%}"] for row in PRIORITY_LEVELS]
    return render_page(
        "Limits of the server",
        "What one client may use of what all share. A request refused by a limit is counted in "
        "`dray_requests_refused_total`, by its name. Set them with `dray server --limit NAME=VALUE`.",
        render_table(
            ["limit", "bounds", "default", "beyond it"],
            ([f"`{word}`", *rest] for word, *rest in list_rows()),
        ),
        "## Limits that are fixed",
        render_table(["bounds", "at most", "beyond it"], FIXED_LIMITS),
        "## Priority",
        "Requests of a class may use `max-in-flight` up to its share; the rest is reserved for "
        "the classes above. In a queue, users take turns. Health checks always pass.",
        render_table(["class", "requests", "share"], classes),
    )


def render_metrics() -> str:
    """Render every metric of every service."""
    return render_page(
        "Metrics",
        "The metrics at `/metrics`, in the text format of Prometheus: those of the server, and for `dray up` "
        "those of everything it runs; a scheduler or controllers in their own process serve theirs at "
        "`--metrics-address`. Names are those of Kubernetes where it has them. Labels never hold names of "
        "objects, users or namespaces, and what the server does not know is `other`. The metrics of the "
        "process (`process_*`) and of Python's garbage collector (`python_gc_*`) come with them.",
        *(f"## {title}\n\n{_render_definitions(rows)}" for title, rows in collect_metric_tables().items()),
    )


def collect_metric_tables() -> Mapping[str, Mapping[str, MetricDefinition]]:
    """Collect the metrics by service."""
    from dray.client import certificate_renewal
    from dray.controllers import metrics as controllers
    from dray.driver import metrics as driver
    from dray.driver.classic import async_controller
    from dray.guard import metrics as guard
    from dray.node import agent_metrics as node
    from dray.node.inspection import metrics as inspection
    from dray.scheduler import metrics as scheduler
    from dray.server.observability import metrics as server

    return {
        "The server": server.MEASURES,
        "The scheduler": scheduler.METRIC_DEFINITIONS,
        "The controllers": controllers.METRIC_DEFINITIONS,
        "The guard": guard.METRIC_DEFINITIONS,
        "Node agents": node.MEASURES,
        "`dray doctor node`": inspection.METRIC_DEFINITIONS,
        "Drivers": {**driver.MEASURES, **async_controller.MEASURES},
        "All processes with a kubeconfig": certificate_renewal.MEASURES,
    }


def _render_definitions(rows: Mapping[str, MetricDefinition]) -> str:
    cells = [[f"`{row.name}`", row.type.value, format_code(row.labels), row.about] for row in rows.values()]
    return render_table(["metric", "type", "labels", "about"], cells)


def render_driver_checks() -> str:
    """Render every check of `dray driver conformance`."""
    from dray.driver.conformance.check_table import CHECKS, CLASSIC_CHECKS

    titles = ["check", "level", "what is true of a good driver", "hint"]
    return render_page(
        "Checks of drivers",
        "The checks of `dray driver conformance`, in this order. *Required* is what a kubelet depends on: "
        "the protocol, and the calls that it makes. *Advised* is stricter, and protects devices and nodes "
        "when something else goes wrong; drivers on Kubernetes' own helper library fail some of it. The exit "
        "code counts required checks only, and all of them with `--strict`.",
        render_table(titles, _list_driver_checks(CHECKS)),
        "## Drivers for classic claims",
        "Those that register as `ResourcePlugin` (KEP-3063).",
        render_table(titles, _list_driver_checks(CLASSIC_CHECKS)),
    )


def _list_driver_checks(checks: Iterable[ConformanceCheck]) -> list[list[str]]:
    return [[f"`{each.name}`", each.level.value, each.title, each.hint] for each in checks]


def render_differences() -> str:
    """Render every intended difference from the allocator of Kubernetes."""
    from dray.simulation.vectors.reference.departures import DECISIONS

    built = [[f"`{name.value}`", said.text] for name, said in DECISIONS.items() if said.built]
    missing = [[f"`{name.value}`"] for name, said in DECISIONS.items() if not said.built]
    return render_page(
        "Differences from Kubernetes",
        "Where the allocator differs from that of Kubernetes; `dray vectors run` uses these names.",
        render_table(["difference", "decision"], built),
        "## Not built",
        "Features of Kubernetes that dray does not have; a vector that needs one is counted as not built.",
        render_table(["gate of Kubernetes"], missing),
    )


def render_lint_rules() -> str:
    """Render every lint rule, with a manifest that breaks it."""
    rows = [[f"[`{rule.id}`](#{rule.id})", rule.severity.value, rule.about] for rule in RULES.values()]
    details = [
        f"## {rule.id}\n\n{rule.severity.value.capitalize()}: {rule.about}.\n\n```yaml\n{rule.example}\n```"
        for rule in RULES.values()
    ]
    return render_page("Rules of `dray lint`", render_table(["rule", "weight", "about"], rows), *details)


def render_kinds() -> str:
    """Render every kind of object, with its fields."""
    rows = [
        [
            kind.name if kind.is_opaque else f"[{kind.name}](#{_format_anchor(kind)})",
            f"`{kind.group}`" if kind.group else "(core)",
            format_code(kind.versions),
            "namespace" if kind.namespaced else "cluster",
            format_code(kind.subresources),
        ]
        for kind in KINDS
    ]
    return render_page(
        "Kinds and their fields",
        "Fields are those of the first version of a kind; older versions are converted to it. A kind that is "
        "marked as open keeps every field, and only those listed are read; a kind without a "
        "section of its own is stored as it is.",
        render_table(["kind", "group", "versions", "scope", "subresources"], rows),
        *(_render_kind(kind) for kind in KINDS if not kind.is_opaque),
    )


def _format_title(kind: Kind) -> str:
    return f"{kind.name} ({kind.internal_api_version})"


def _format_anchor(kind: Kind) -> str:
    """Return the anchor that Markdown makes of a title."""
    kept = (char for char in _format_title(kind).lower().replace(" ", "-") if char.isalnum() or char == "-")
    return "".join(kept)


def _render_kind(kind: Kind) -> str:
    about = _get_summary(kind.type) + (" Open: other fields are kept." if kind.open else "")
    rows = [
        [f"`{field}`", shape, _format_default(kind, field), format_code(_list_gates(kind, field)), words]
        for field, shape, words in _iterate_fields(kind.type, "")
    ]
    return f"## {_format_title(kind)}\n\n{about}\n\n" + render_table(
        ["field", "type", "default", "gates", "about"], rows
    )


def _format_default(kind: Kind, field: str) -> str:
    row = next((row for row in DEFAULTS.get(kind.type, ()) if row.field == field), None)
    if row is None:
        return ""
    value = "the time" if row.value is NOW else f"`{row.value}`"
    return value if row.about == "always" else f"{value} {row.about}"


def _list_gates(kind: Kind, field: str) -> list[str]:
    """List the gates a field is behind, by itself or inside a field that is."""
    return [
        gate
        for gate, by_kind in GATED_FIELDS.items()
        if any(
            field == behind or field.startswith((f"{behind}.", f"{behind}[", f"{behind}{{"))
            for behind in by_kind.get(kind.qualified_name, ())
        )
    ]


def _get_summary(shape: type) -> str:
    return (shape.__doc__ or "").strip().partition("\n")[0]


_LEAF_STRUCTS = ("ObjectMeta", "NodeSelector")
"""Structs that are everywhere the same; their fields are not repeated."""


def _iterate_fields(shape: type, prefix: str) -> Iterator[tuple[str, str, str]]:
    """Yield every field below a struct: its path, its type and its description."""
    words = get_field_docs(shape)
    info = inspect.type_info(shape)
    assert isinstance(info, inspect.StructType)
    for field in info.fields:
        path = f"{prefix}{field.encode_name}"
        marks, inner = _unwrap_type(field.type)
        if isinstance(inner, inspect.StructType) and inner.cls.__name__ not in _LEAF_STRUCTS:
            yield path + marks, _format_type(marks, inner.cls.__name__), words[field.encode_name]
            yield from _iterate_fields(inner.cls, f"{path}{marks}.")
        else:
            yield path + marks, _format_type(marks, _format_type_name(inner)), words[field.encode_name]


def _format_type(marks: str, word: str) -> str:
    return {"": word, "[]": f"list of {word}", "{}": f"map of {word}"}.get(marks, word)


def _unwrap_type(kind: inspect.Type) -> tuple[str, inspect.Type]:
    """Return the type of a field's items, and whether they are in a list (`[]`) or a map (`{}`)."""
    match kind:
        case inspect.Metadata(type=inner):
            return _unwrap_type(inner)
        case inspect.UnionType(types=members):
            return _unwrap_type(next(m for m in members if not isinstance(m, inspect.NoneType)))
        case inspect.VarTupleType(item_type=inner):
            return "[]", _unwrap_type(inner)[1]
        case inspect.DictType(value_type=inner):
            return "{}", _unwrap_type(inner)[1]
        case _:
            return "", kind


_TYPE_NAMES: Mapping[type, str] = {
    inspect.StrType: "string",
    inspect.IntType: "integer",
    inspect.BoolType: "boolean",
    inspect.RawType: "any JSON",
    inspect.AnyType: "any JSON",
}


def _format_type_name(kind: inspect.Type) -> str:
    cls = getattr(kind, "cls", None)
    if isinstance(kind, inspect.CustomType | inspect.StructType) and cls is not None:
        return str(cls.__name__)
    if isinstance(kind, inspect.StrType) and kind.pattern:
        return "time"
    return _TYPE_NAMES.get(type(kind), type(kind).__name__)


def render_commands() -> str:
    """Render the help of every command."""
    from dray.cli.app import COMMANDS, dray

    root = _build_context(dray, "dray")
    each = [(command, name) for name in COMMANDS if (command := dray.get_command(root, name))]
    helps = [
        text for command, name in each for text in _render_helps(command, _build_context(command, name, root))
    ]
    return render_page("Commands", _render_help(dray, root), *helps)


def _render_helps(command: click.Command, context: click.Context) -> Iterator[str]:
    """Render the help of a command and of its subcommands."""
    yield _render_help(command, context)
    for name, inner in command.commands.items() if isinstance(command, click.Group) else ():
        yield _render_help(inner, _build_context(inner, name, context))


def _render_help(command: click.Command, context: click.Context) -> str:
    return f"## {context.command_path}\n\n```text\n{command.get_help(context).rstrip()}\n```"


def _build_context(command: click.Command, name: str, parent: click.Context | None = None) -> click.Context:
    """Build a context that does not depend on the terminal."""
    return click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=100,
        max_content_width=100,
        help_option_names=["-h", "--help"],
    )


PAGES: Mapping[str, tuple[str, Callable[[], str]]] = MappingProxyType(
    {
        "commands": ("Commands", render_commands),
        "lint-rules": ("Rules of `dray lint`", render_lint_rules),
        "kinds": ("Kinds and their fields", render_kinds),
        "defaults": ("Defaults", render_defaults),
        "gates": ("Feature gates", render_gates),
        "limits": ("Limits", render_limits),
        "server-limits": ("Limits of the server", render_server_limits),
        "metrics": ("Metrics", render_metrics),
        "driver-checks": ("Checks of drivers", render_driver_checks),
        "differences": ("Differences from Kubernetes", render_differences),
    }
)
"""Every page: its file, its title, what makes it."""


def render_index() -> str:
    """The list of the pages."""
    return render_page(
        "Reference", "\n".join(f"- [{title}]({name}.md)" for name, (title, _) in PAGES.items())
    )


def render_all_pages() -> dict[str, str]:
    """All pages by file name."""
    return {"index.md": render_index(), **{f"{name}.md": make() for name, (_, make) in PAGES.items()}}

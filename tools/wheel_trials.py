"""The table of commands by which an installed wheel is tried: what each prints, and how it ends.

The commands are those of a first day: the version, the kubectl plugin, and allocate, explain, lint and gates
on the examples. None of them needs a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class WheelTrial:
    """A command of an installed wheel."""

    name: str
    command: tuple[str | Path, ...]
    """The program, by its name in the environment, and its arguments."""
    output: str
    """A part of what it prints."""
    exit_code: int = 0


def list_trials(version: str, environment: Path, examples: Path) -> tuple[WheelTrial, ...]:
    """List the trials of a wheel that is installed in `environment`."""
    cluster, waiting = examples / "gpu-cluster", examples / "waiting"
    why = ("explain", "-f", cluster, "-f", waiting, "pod/finetune", "-n", "ml")
    refused = "cannot run yet: no node can satisfy claim ml/two-gpus"
    modules = "import dray.driver, dray.guard, dray_examples; print(dray.driver.__file__)"
    return (
        WheelTrial("version", ("dray", "--version"), f"dray {version}"),
        WheelTrial("plugin", ("kubectl-dray", "--version"), version),
        WheelTrial("lint", ("dray", "lint", "--complete", cluster), "nothing to complain about"),
        WheelTrial(
            "allocate", ("dray", "allocate", "-f", cluster), "ml/train-0               ml/train-0-devices"
        ),
        WheelTrial("explain", ("dray", *why), refused, exit_code=1),
        WheelTrial("plugin explain", ("kubectl-dray", *why), refused, exit_code=1),
        WheelTrial("gates", ("dray", "gates"), "DRAPrioritizedList"),
        WheelTrial("reference", ("dray", "driver", "--help"), "conformance"),
        WheelTrial("import", ("python", "-c", modules), str(environment)),
    )


def list_kubectl_trials(version: str, kubectl: str) -> tuple[WheelTrial, ...]:
    """List the trials by way of kubectl, which finds the plugin on PATH."""
    return (
        WheelTrial("kubectl plugin", (kubectl, "dray", "--version"), version),
        WheelTrial("kubectl gates", (kubectl, "dray", "gates"), "DRAPrioritizedList"),
    )

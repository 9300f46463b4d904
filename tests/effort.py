"""How hard a law looks: a share of what the profile of hypothesis asks for. A nightly run looks further."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def effort(share: float, **more: Any) -> settings:
    """Settings for a law whose examples cost more (below 1) or less (above 1) than usual."""
    return settings(max_examples=max(1, round(settings().max_examples * share)), deadline=None, **more)

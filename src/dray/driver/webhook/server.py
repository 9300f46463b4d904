"""The admission webhook of a driver, which refuses parameters that the driver cannot decode.

config = ParameterReviewConfig("gpu.example.com", Settings)
async with serve_webhook(config, WebhookListenOptions("0.0.0.0:8443", cert, key)):
    ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dray.api.json_text import write_json
from dray.driver.webhook.reviews import ParameterReviewConfig, review_admission
from dray.telemetry.logs import StructuredLogger
from dray.webhook_server import VALIDATE_PATH, WebhookListenOptions, serve_reviews


@asynccontextmanager
async def serve_webhook(
    config: ParameterReviewConfig, options: WebhookListenOptions, log: StructuredLogger | None = None
) -> AsyncIterator[str]:
    """Serve reviews while the context is open; yields the URL of the webhook."""

    async def answer(body: bytes) -> bytes:
        return write_json(await review_admission(config, body))

    async with serve_reviews({VALIDATE_PATH: answer}, options, log) as url:
        yield url + VALIDATE_PATH

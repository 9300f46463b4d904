"""What in a webhook configuration breaks a promise of the guard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dray.guard.tls_secret import find_weaknesses

MANIFEST = Path(__file__).parents[3] / "deploy" / "guard.yaml"


def read_webhooks() -> list[dict[str, Any]]:
    documents = yaml.safe_load_all(MANIFEST.read_text("utf-8"))
    return next(each["webhooks"] for each in documents if each["kind"] == "ValidatingWebhookConfiguration")


def test_the_webhook_that_is_deployed_has_no_weakness():
    assert find_weaknesses(read_webhooks()) == []
    stored: dict[str, Any] = {"namespaceSelector": {}, "objectSelector": {}}  # as an API server fills them in
    assert find_weaknesses([each | stored for each in read_webhooks()]) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"failurePolicy": "Ignore"}, "`failurePolicy` is `Ignore`"),
        ({"timeoutSeconds": 10}, "`timeoutSeconds` is 10"),
        ({"namespaceSelector": {"matchLabels": {"a": "b"}}}, "`namespaceSelector` is set"),
        ({"objectSelector": {"matchLabels": {"a": "b"}}}, "`objectSelector` is set"),
    ],
)
def test_a_weaker_configuration_is_told(changed: dict[str, Any], message: str):
    (found,) = find_weaknesses([read_webhooks()[0] | changed])
    assert found.startswith(message)

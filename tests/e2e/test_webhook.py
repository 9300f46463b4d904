"""A driver's manifests are applied, its webhook runs, and wrong parameters do not get past kubectl."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from dray.server.auth.authn.certificates import CertificateAuthority
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import SOON
from tests.e2e.processes import Process
from tests.e2e.server import clean_environment, running

DRIVER = (sys.executable, "examples/drivers/env/driver.py")
NAMESPACE, SERVICE = "env-example-com", "env-example-com-webhook"


def claim(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    request = {"name": "environment", "exactly": {"deviceClassName": "env.example.com"}}
    opaque = {"driver": "env.example.com", "parameters": parameters}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [request], "config": [{"opaque": opaque}]}},
    }


def test_wrong_parameters_are_refused_in_the_words_of_the_driver(
    tmp_path: Path, home: Path, kubectl_program: str
) -> None:
    certificates = CertificateAuthority.open(tmp_path / "issued", (f"{SERVICE}.{NAMESPACE}.svc",))
    bundle = base64.b64encode(certificates.ca_pem).decode()
    shown = ("--certificate", str(certificates.serving_file), "--key", str(certificates.serving_file))
    webhook = Process(
        (*DRIVER, "webhook", "--address", "127.0.0.1:0", *shown), tmp_path / "webhook.log", "https://"
    )
    webhook.start()
    try:
        said = re.search(r"https://([0-9.]+:[0-9]+)", webhook.log.read_text())
        assert said is not None
        with running(tmp_path, "--webhook-service", f"{NAMESPACE}/{SERVICE}={said[1]}") as server:
            kubectl = Kubectl(kubectl_program, clean_environment(home, server.kubeconfig), "default")
            made = subprocess.run(
                (*DRIVER, "manifests", "--image", "registry.example.com/env:1", "--ca-bundle", bundle),
                capture_output=True,
                text=True,
                timeout=SOON,
                check=True,
            )
            kubectl("apply", "-n", NAMESPACE, "-f", "-", given=made.stdout)
            refused = kubectl("apply", "-f", "-", given=claim("bad", {"evn": {}}), fails=True)
            assert 'admission webhook "parameters.env.example.com" denied the request: ' in refused.err
            place = "spec.devices.config[0].opaque.parameters.evn"
            assert f"{place}: unknown field; did you mean `env`?" in refused.err
            kubectl("apply", "-f", "-", given=claim("good", {"env": {"greeting": "hello"}}))
            changed = kubectl(
                "apply", "--dry-run=server", "-f", "-", given=claim("good2", {"env": 7}), fails=True
            )
            assert "spec.devices.config[0].opaque.parameters.env" in changed.err
            assert kubectl("get", "resourceclaims", "-o", "name").out.split() == [
                "resourceclaim.resource.k8s.io/good"
            ]
    finally:
        webhook.stop()

"""The image: what its Containerfile may contain, and a build of it where there is a builder.

`make image.replay` carries out its steps without one.
"""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
import yaml

from tests.deploy.containerfile import CONTAINERFILE, read_stages
from tests.outside import ROOT

BUILDERS = ("podman", "buildah", "docker")
STAGES = read_stages()
IMAGE = STAGES[-1]


def test_the_base_is_named_by_its_full_version():
    for stage in STAGES:
        assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+", stage.base), stage.base


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_pip_takes_only_what_is_pinned_by_hash_or_copied(stage):
    calls = [step.text for step in stage.find("RUN") if " pip " in step.text]
    assert calls
    for call in calls:
        assert "&&" not in call, "one call for each step, so that each is judged"
        by_hash = "--require-hashes -r " in call
        copied = "--no-deps" in call and ("--no-index" in call or "--no-build-isolation" in call)
        assert by_hash or copied, call


def test_everything_copied_is_in_the_repository():
    for stage in STAGES:
        for step in stage.find("COPY"):
            words = step.parse_words()
            if not words[0].startswith("--from="):
                assert all((ROOT / source).exists() for source in words[:-1]), step.text


def test_links_lead_to_what_is_copied():
    """A link whose target stays behind would build a wheel without those modules."""
    copied = {ROOT / word for step in STAGES[0].find("COPY") for word in step.parse_words()[:-1]}
    links = [path.resolve() for path in (ROOT / "src").iterdir() if path.is_symlink()]
    assert links
    assert set(links) <= copied


def test_the_image_runs_as_the_user_of_the_manifests():
    (user,) = IMAGE.find("USER")
    number = int(user.text.split(":")[0])
    assert number > 0
    for service in ("scheduler", "controller", "guard"):
        documents = yaml.safe_load_all((ROOT / "deploy" / f"{service}.yaml").read_text("utf-8"))
        (deployment,) = [each for each in documents if each["kind"] == "Deployment"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["securityContext"]["runAsUser"] == number
        exposed = {int(port) for step in IMAGE.find("EXPOSE") for port in step.parse_words()}
        assert {port["containerPort"] for port in container["ports"]} <= exposed


def test_only_the_volume_is_written_to():
    (volume,), (workdir,) = IMAGE.find("VOLUME"), IMAGE.find("WORKDIR")
    assert volume.text == workdir.text
    assert any(f"-m 0750 {volume.text}" in step.text for step in IMAGE.find("RUN"))


def find_builder() -> str | None:
    """A builder with a running engine that has the base image."""
    for name in BUILDERS:
        program = shutil.which(name)
        asked = (
            [program, "image", "inspect", IMAGE.base]
            if name != "buildah"
            else [program, "inspect", IMAGE.base]
        )
        if program and subprocess.run(asked, capture_output=True, check=False).returncode == 0:  # type: ignore[arg-type]
            return program
    return None


def test_the_image_builds():
    builder = find_builder()
    if builder is None:
        pytest.skip(f"no {', '.join(BUILDERS)} with the image {IMAGE.base}; `make image.replay` needs none")
    subprocess.run(
        [builder, "build", "-t", "dray:test", "-f", str(CONTAINERFILE), str(ROOT)], check=True, timeout=900
    )
    if not builder.endswith("buildah"):
        shown = subprocess.run(
            [builder, "run", "--rm", "--read-only", "dray:test", "--version"], check=True, capture_output=True
        )
        assert shown.stdout.startswith(b"dray ")

"""Which directories a driver uses when several agents are possible: a table of what is there and given."""

from __future__ import annotations

from pathlib import Path

import pytest

from dray.driver.service.agent_directories import (
    CDI_DIR,
    AgentDirectories,
    AgentRoot,
    GivenDirectories,
    choose_directories,
    find_agent_roots,
)
from dray.errors import InputError

KUBELET = AgentRoot(Path("/k"), "of a kubelet")
AGENT = AgentRoot(Path("/a"), "of `dray node`")
UP = AgentRoot(Path("/u"), "of `dray up`", Path("/u/cdi"))
NOTHING = GivenDirectories()


def below(root: str, cdi: Path = CDI_DIR) -> AgentDirectories:
    return AgentDirectories(Path(root, "plugins"), Path(root, "plugins_registry"), cdi)


@pytest.mark.parametrize(
    ("given", "found", "expected"),
    [
        (NOTHING, [], below("/var/lib/kubelet")),
        (NOTHING, [KUBELET], below("/k")),
        (NOTHING, [AGENT], below("/a")),
        (NOTHING, [UP], below("/u", Path("/u/cdi"))),
        (GivenDirectories(cdi=Path("/c")), [UP], below("/u", Path("/c"))),
        (GivenDirectories(root=Path("/x")), [AGENT, KUBELET], below("/x")),
        (
            GivenDirectories(plugins=Path("/p"), registry=Path("/r")),
            [AGENT, KUBELET],
            AgentDirectories(Path("/p"), Path("/r"), CDI_DIR),
        ),
        (
            GivenDirectories(root=Path("/x"), registry=Path("/r")),
            [],
            AgentDirectories(Path("/x/plugins"), Path("/r"), CDI_DIR),
        ),
    ],
)
def test_one_agent_is_used_and_what_is_given_counts(
    given: GivenDirectories, found: list[AgentRoot], expected: AgentDirectories
) -> None:
    assert choose_directories(given, found) == expected


@pytest.mark.parametrize("given", [NOTHING, GivenDirectories(plugins=Path("/p"), cdi=Path("/c"))])
@pytest.mark.parametrize("found", [[AGENT, KUBELET], [AGENT, UP], [UP, KUBELET], [AGENT, UP, KUBELET]])
def test_several_agents_are_an_error_that_names_each_and_its_flag(
    given: GivenDirectories, found: list[AgentRoot]
) -> None:
    with pytest.raises(InputError) as refused:
        choose_directories(given, found)
    for each in found:
        assert f"`{each.path}` ({each.what})" in str(refused.value)
        assert f"`--kubelet-dir {each.path}`" in str(refused.value)


def test_agents_are_found_in_their_default_places(tmp_path: Path) -> None:
    kubelet, work = tmp_path / "kubelet", tmp_path / "work"
    assert list(find_agent_roots("n", work, kubelet)) == []
    for name in (
        "kubelet/plugins_registry",
        "work/dray-node/plugins_registry",
        "work/dray-data/nodes/n/plugins_registry",
    ):
        (tmp_path / name).mkdir(parents=True)
    up = work / "dray-data" / "nodes" / "n"
    assert list(find_agent_roots("n", work, kubelet)) == [
        AgentRoot(work / "dray-node", "of `dray node`"),
        AgentRoot(up, "of `dray up`", up / "cdi"),
        AgentRoot(kubelet, "of a kubelet"),
    ]
    other = list(find_agent_roots("m", work, kubelet))
    assert [each.path for each in other] == [work / "dray-node", kubelet], "`dray up` has no such node"

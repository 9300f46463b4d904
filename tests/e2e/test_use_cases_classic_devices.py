"""Use cases of KEP-3063 about devices: set up before a workload, wiped after it, reached over a fabric."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.classic import classic_class
from tests.e2e.patience import until
from tests.e2e.vendors import (
    CLAIMS,
    Place,
    Vendor,
    container,
    folder_of_vendor,
    inline,
    named,
    pod,
    vendors_place,
)
from tests.outside import ROOT

req = pytest.mark.req
FPGA, FABRIC = "fpga.example.com", "fabric.acme.com"
FPGAS = ROOT / "examples" / "drivers" / "fpga"
STAYS = "exec sleep 600"
ON_CARD = 'card=$(dirname "$FPGA_MEMORY"); '


@pytest.fixture(scope="module")
def outside() -> Iterator[Path]:
    """What drivers reach, and the cluster does not: cards and a fabric."""
    with folder_of_vendor() as folder:
        yield folder


@pytest.fixture(scope="module")
def works(
    tmp_path_factory: pytest.TempPathFactory, home: Path, kubectl_program: str, outside: Path
) -> Iterator[Place]:
    """Two nodes that reach a fabric; one of them has FPGA cards."""
    folder = tmp_path_factory.mktemp("devices")
    with vendors_place(folder, home, kubectl_program, "node-a", "node-b") as made:
        _let_in(made)
        environment = {"FPGA_CARDS": str(outside / "cards")}
        options = ("--inventory", "--namespace", "fpga-system")
        made.installs(Vendor(FPGA, (str(FPGAS / "driver.py"),), environment, options), "node-a")
        fabric = Vendor(FABRIC, ("-m", "tests.e2e.programs.fabric"), {"FABRIC": str(outside / "fabric")})
        made.installs(fabric, "node-a", "node-b")
        classes = [classic_class("fpga", FPGA), classic_class("volume", FABRIC)]
        made.kubectl("create", "-f", "-", given=[*classes, classic_class("shared-volume", FABRIC, users=-1)])
        yield made


def _let_in(made: Place) -> None:
    """The driver of the cards may write what nodes have of them, and nobody else may."""
    made.kubectl("apply", "-n", "fpga-system", "-f", str(FPGAS / "rights.yaml"))
    who = ("--role=fpga-driver", f"--group=dray:driver:{FPGA}")
    made.kubectl("create", "rolebinding", "driver", "-n", "fpga-system", *who)


@pytest.fixture
def place(works: Place) -> Iterator[Place]:
    """A namespace of its own; the objects of one use case are gone before the next one begins."""
    made = works.apart()
    yield made
    made.kubectl("delete", f"pods,{CLAIMS}", "--all", "--timeout=30s")


@req("K3063-008", "K3063-013", "K3063-123", "K3063-132")
def test_a_card_is_loaded_with_the_bitstream_of_its_claim_before_the_workload_starts(
    place: Place, outside: Path
) -> None:
    place.claim("filter", "fpga", "Immediate", bitstream="low-pass")
    check = 'test "$(cat $card/bitstream)" = low-pass; '
    # The very first thing that the first container does is to look.
    first = container(ON_CARD + check, "res", name="first")
    document = pod("p", [named("filter")], container(ON_CARD + check + STAYS, "res"))
    document["spec"]["initContainers"] = [first]
    place.makes(document)
    assert place.runs("p") == "node-a"
    card = place.status("filter")["attributes"]["card"]
    assert (outside / "cards" / card / "bitstream").read_text() == "low-pass"

    # Another workload has another card, and what it asked for on that.
    entry = inline("fpga", bitstream="high-pass")
    script = ON_CARD + 'test "$(cat $card/bitstream)" = high-pass; basename $card'
    place.makes(pod("other", [entry], container(script, "res")))
    assert place.succeeds("other").strip() not in ("", card)
    assert (outside / "cards" / card / "bitstream").read_text() == "low-pass"


@req("K3063-009", "K3063-013", "K3063-127", "K3063-144")
def test_nothing_of_a_workload_is_left_on_its_card_for_the_next_one(place: Place, outside: Path) -> None:
    place.claim("filter", "fpga", "Immediate", bitstream="low-pass")
    used = ON_CARD + 'test ! -s "$FPGA_MEMORY"; echo secret > "$FPGA_MEMORY"; basename $card'
    place.makes(pod("first", [named("filter")], container(used, "res")))
    card = place.succeeds("first").strip()
    # Who reads that it ended reads that the card was wiped.
    assert list((outside / "cards" / card).iterdir()) == []

    # The next one has the same card and finds what the first one found.
    place.makes(pod("second", [named("filter")], container(used, "res")))
    assert place.succeeds("second").strip() == card

    # One that is deleted while it runs leaves no more than one that ended.
    place.makes(pod("third", [named("filter")], container(f"{used}; {STAYS}", "res")))
    place.runs("third")
    until(lambda: (outside / "cards" / card / "memory").read_text() == "secret\n", place.seen)
    place.kubectl("delete", "pod", "third", "--timeout=30s")
    assert list((outside / "cards" / card).iterdir()) == []
    assert place.status("filter")["phase"] == "Allocated"


@req("K3063-012", "K3063-014", "K3063-130")
def test_a_volume_on_a_fabric_is_used_from_two_nodes_at_once(place: Place, outside: Path) -> None:
    place.claim("shared", "shared-volume", "Immediate")
    reads = 'until cat "$VOLUME/hello" 2> /dev/null; do sleep 0.1; done; ' + STAYS
    writes = 'echo hello over there > "$VOLUME/new"; mv "$VOLUME/new" "$VOLUME/hello"; ' + STAYS
    place.makes(
        pod("reads", [named("shared")], container(reads, "res"), node="node-b"),
        pod("writes", [named("shared")], container(writes, "res"), node="node-a"),
    )
    assert (place.runs("writes"), place.runs("reads")) == ("node-a", "node-b")
    until(lambda: place.kubectl("logs", "reads").out == "hello over there\n", place.seen)
    status = place.status("shared")
    links = outside / "fabric" / status["attributes"]["volume"] / "links"
    assert sorted(user["name"] for user in status["reservedFor"]) == ["reads", "writes"]
    assert sorted(link.name for link in links.iterdir()) == ["node-a", "node-b"]

    # A node that needs it no longer lets go, and the other does not notice.
    place.kubectl("delete", "pod", "writes", "--timeout=30s")
    assert [link.name for link in links.iterdir()] == ["node-b"]
    assert place.phase("reads") == "Running"


@req("K3063-012", "K3063-128", "K3063-126")
def test_a_volume_goes_from_one_node_to_another_with_what_is_on_it(place: Place, outside: Path) -> None:
    place.claim("mine", "volume", "Immediate")
    counts = 'echo $NODE >> "$VOLUME/visits"; cat "$VOLUME/visits"; ' + STAYS
    for name, node in (("first", "node-a"), ("second", "node-b")):
        document = pod(name, [named("mine")], container(counts, "res"), node=node)
        where = {"fieldRef": {"fieldPath": "spec.nodeName"}}
        document["spec"]["containers"][0]["env"] = [{"name": "NODE", "valueFrom": where}]
        place.makes(document)
    # One at a time: the second one waits until the first one is gone, and its node has let go.
    assert place.runs("first") == "node-a"
    place.told("second", "has 1 user")
    place.kubectl("delete", "pod", "first", "--timeout=30s")
    assert place.runs("second") == "node-b"
    until(lambda: place.kubectl("logs", "second").out == "node-a\nnode-b\n", place.seen)
    links = outside / "fabric" / place.status("mine")["attributes"]["volume"] / "links"
    assert [link.name for link in links.iterdir()] == ["node-b"]


@req("K3063-003")
def test_it_takes_a_server_a_controller_a_scheduler_and_an_agent(place: Place) -> None:
    """Each does its part and no other: without the next one a pod stays where it is."""
    agent = place.nodes["node-a"].agent
    for process in (*place.services.values(), agent):
        process.stop()
    script = 'test -d "$VOLUME"; ' + STAYS
    place.makes(pod("p", [inline("volume")], container(script, "res"), node="node-a"))
    assert place.kubectl.get(CLAIMS)["items"] == []
    place.services["controller"].start()
    until(lambda: len(place.kubectl.get(CLAIMS)["items"]) == 1, place.seen)
    assert place.node_of("p") == ""
    place.services["scheduler"].start()
    until(lambda: place.node_of("p") == "node-a", place.seen)
    assert place.phase("p") == "Pending"
    agent.start()
    assert place.runs("p") == "node-a"


@req("K3063-149", "K3063-150")
def test_what_nodes_have_stands_in_objects_that_only_the_driver_writes(place: Place) -> None:
    found = place.kubectl("get", "configmap", "node-a", "-n", "fpga-system", "-o", "json").document
    assert found["data"] == {"cards": "card-0,card-1"}
    patch = ("patch", "configmap", "node-a", "-n", "fpga-system", "--type=merge")
    change = json.dumps({"data": {"cards": "card-7"}})
    jane = str(place.cluster.credentials("jane"))
    assert "forbidden" in place.kubectl(*patch, "-p", change, KUBECONFIG=jane, fails=True).err.lower()


@req("K3063-124", "K3063-125", "K3063-171")
def test_pods_that_were_put_on_a_node_without_their_claim_do_not_run_there(place: Place) -> None:
    place.claim("mine", "volume", "Immediate")
    place.makes(pod("owner", [named("mine")], container('test -d "$VOLUME"; ' + STAYS, "res")))
    node = place.runs("owner")
    for name, claim in (("intruder", "mine"), ("lost", "nowhere")):
        document = pod(name, [named(claim)], container(STAYS, "res"))
        document["spec"]["nodeName"] = node
        place.makes(document)
    here = place.kubectl.namespace
    place.told("intruder", f"claim {here}/mine is not reserved for this pod, but for owner")
    place.told("lost", f"claim {here}/nowhere of entry `res` does not exist")
    words = {"owner": "Running", "intruder": "ClaimNotReserved", "lost": "ClaimMissing"}

    def shown() -> dict[str, str]:
        return {row[0]: row[2] for row in place.kubectl("get", "pods", "--no-headers").rows}

    until(lambda: shown() == words, place.seen)
    assert place.kubectl.get("pod", "owner")["status"]["containerStatuses"][0]["restartCount"] == 0


@req("K3063-176", "K3063-053")
def test_a_pod_waits_for_the_part_of_its_driver_on_the_node(place: Place) -> None:
    driver = place.parts[FABRIC, "node-b"]
    driver.stop()
    try:
        entry, script = inline("volume"), 'test -d "$VOLUME"; ' + STAYS
        place.makes(pod("p", [entry], container(script, "res"), node="node-b"))
        place.told("p", FABRIC)
        assert place.node_of("p") == "node-b"
        assert place.status("p-res")["phase"] == "Allocated"
        assert place.phase("p") == "Pending"
    finally:
        driver.start()
    place.runs("p")


@req("K3063-186")
def test_containers_start_again_while_the_server_is_away(place: Place, outside: Path) -> None:
    place.claim("mine", "volume", "Immediate")
    script = 'cd "$VOLUME"; echo start >> starts; until [ -e end ]; do sleep 0.1; done; rm end; exit 1'
    document = pod("p", [named("mine")], container(script, "res"))
    document["spec"]["restartPolicy"] = "Always"
    place.makes(document)
    place.runs("p")
    volume = outside / "fabric" / place.status("mine")["attributes"]["volume"]
    until(lambda: (volume / "starts").read_text() == "start\n", place.seen)
    server = place.cluster.server.process
    server.send_signal(signal.SIGSTOP)
    try:
        (volume / "end").touch()
        until(lambda: (volume / "starts").read_text() == "start\nstart\n")
    finally:
        server.send_signal(signal.SIGCONT)
    until(lambda: place.kubectl.get("pod", "p")["status"]["containerStatuses"][0]["restartCount"] == 1)

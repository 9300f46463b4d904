"""What a server loads when it starts: nothing that it needs only to ask others."""

from __future__ import annotations

import subprocess
import sys

SAYS = "import sys, dray.cluster.control; print(sorted({'aiohttp', 'yarl'} & set(sys.modules)))"


def test_a_server_starts_without_a_library_to_ask_others_with():
    done = subprocess.run(
        [sys.executable, "-c", SAYS], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"

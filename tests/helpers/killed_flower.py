"""A federation of real processes over Flower (server, SuperLink, three SuperNodes and their clients, with TLS) whose
processes are killed (kill -9) at random moments, and which ends with the simulator's bits."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path

from helpers.federated import Federated
from helpers.killed import Outcome

ROUNDS = 10
SERVER, LINK, NODE, CLIENT = "server", "SuperLink", "SuperNode", "client process"
MODULES = {
    LINK: "fedchord.remote.flower_link",
    NODE: "fedchord.remote.flower_node",
    CLIENT: "fedchord.remote.attending",
}


def survive_flower(folder: Path, draw: random.Random, most: int = 5) -> Outcome:
    """Kill two to `most` processes of a federation, one after another; the server is started again by us, the others
    are by those who started them. Then let it end, and compare."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    made = Federated(folder, {"method": "scaffold", "rounds": ROUNDS}, deadline=40.0, wait=300.0)
    kills, moments = 0, list[str]()
    try:
        for client in range(3):
            made.join(client)
        made.serve()
        for begun in sorted(draw.sample(range(ROUNDS), draw.randint(2, most))):
            made.until(lambda begun=begun: made.rounds_done >= begun, 600)  # type: ignore[misc]
            time.sleep(draw.uniform(0, 2.0))
            what = draw.choice([SERVER, *MODULES])
            done = _killed(made, what, draw.randrange(3))
            kills += done
            moments.append(f"{what} after round {made.rounds_done}{'' if done else ' (ended before)'}")
        summary = made.simulate()
        if made.wait(made.processes[-1], 600):
            return Outcome(kills, made.logs()[-3000:], moments)
        made.assert_same(summary)
    except AssertionError as error:
        return Outcome(kills, str(error)[-3000:] or "other bits", moments)
    finally:
        made.end()
    return Outcome(kills, "", moments)


def _killed(made: Federated, what: str, client: int) -> bool:
    """Whether a process was killed, and the federation had not ended before. The server is the newest process."""
    server = made.processes[-1]
    end = time.monotonic() + 120
    while server.poll() is None:
        if what == SERVER:
            server.kill()
            server.wait()
            made.serve(*(["--resume"] if (made.folder / "out" / "config.toml").is_file() else []))
            return True
        pid = made.pid_of(len(made.processes) - 1 if what == LINK else client, MODULES[what])
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            return True
        assert time.monotonic() < end, f"the {what} is not there\n{made.logs()}"
        time.sleep(0.1)  # it was killed just before, and is started again
    return False

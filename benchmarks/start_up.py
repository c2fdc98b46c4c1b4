"""How long `headway --help`, `run -- true` and `ps` take with a daemon, beside a bare Python.

python -m benchmarks.start_up [ROUNDS]
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HEADWAY = str(Path(sys.executable).with_name("headway"))
CASES = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "headway --help": [HEADWAY, "--help"],
    "headway run -- true": [HEADWAY, "run", "--", "true"],
    "headway ps": [HEADWAY, "ps"],
}


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    times: dict[str, list[float]] = {case: [] for case in CASES}
    cpu: dict[str, list[float]] = {case: [] for case in CASES}
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "HEADWAY_DIR": f"{folder}/run", "XDG_CONFIG_HOME": folder}
        daemon = subprocess.Popen([HEADWAY, "daemon", "--display", "none"], env=env)
        try:
            while not Path(folder, "run", "control.sock").exists():
                time.sleep(0.01)
            for _ in range(rounds):  # one of each, so that a busy moment is everybody's
                for case, command in CASES.items():
                    began, used = time.perf_counter(), children()
                    subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=True)
                    times[case].append(time.perf_counter() - began)
                    cpu[case].append(children() - used)
        finally:
            daemon.terminate()
            daemon.wait()
    bare = statistics.median(times["python -c pass"])
    for case, found in times.items():
        quartiles = statistics.quantiles(found, n=4)
        spread = f"{quartiles[0] * 1e3:.0f} to {quartiles[2] * 1e3:.0f}"
        median = statistics.median(found)
        own = statistics.median(cpu[case]) * 1e3
        print(
            f"{case:<20} {median * 1e3:4.0f} ms ({spread}), {own:.0f} ms of CPU,"
            f" {median / bare:.1f} of a bare Python"
        )


def children() -> float:
    """CPU time of the processes that have ended: what a busy machine hardly changes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()

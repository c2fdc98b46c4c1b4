"""One target, fed by coverage: atheris changes inputs until another line of the reader runs.

    python -m tests.fuzz.run TARGET [--seconds N] [--seed S] [--out FOLDER]

Begins with the saved corpus; what is new goes to the folder, and what fails too. Exit code 0:
nothing failed.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

import atheris

# An editable installation has a finder of its own, past which atheris cannot instrument.
sys.meta_path[:] = [f for f in sys.meta_path if "Redirecting" not in type(f).__name__]
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
with atheris.instrument_imports(include=["headway"]):
    from tests.fuzz.targets import TARGETS, broken

CORPUS = Path(__file__).with_name("corpus")
LONGEST = 1 << 14
WORDS = Path(__file__).with_name("words")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", choices=[*sorted(TARGETS), "broken"])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1, 2**31))
    parser.add_argument("--out", type=Path, default=Path("out/fuzz"))
    options = parser.parse_args()
    found = options.out / options.target
    found.mkdir(parents=True, exist_ok=True)
    print(f"fuzz {options.target}: seed {options.seed}, {options.seconds} s", flush=True)
    command = [sys.argv[0], str(found), *map(str, CORPUS.glob(options.target))]
    command += [f"-max_total_time={options.seconds}", f"-seed={options.seed}", f"-dict={WORDS}"]
    command += [f"-max_len={LONGEST}", f"-artifact_prefix={found}/failed-", "-verbosity=0"]
    command += ["-timeout=10", "-rss_limit_mb=2048"]
    atheris.Setup(command, {**TARGETS, "broken": broken}[options.target])
    atheris.Fuzz()


if __name__ == "__main__":
    main()

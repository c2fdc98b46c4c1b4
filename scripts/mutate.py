#!/usr/bin/env python3
"""Mistakes put into a copy of the tree, one at a time: do the tests that name them fail?

    scripts/mutate.py [--only WORD] [--list]

tests/mutations.toml lists the mistakes. A mistake that no test notices is printed as "survived",
and so is one whose text is not in the tree any more. Exit code 0: every mistake was noticed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TREE = ROOT / "out" / "mutate"
LIMIT_S = 300
BUILT = ("shim/", "src/headway/live/wire/layout.py")
"""What the interposer is made of."""


@dataclass(frozen=True)
class Mutation:
    name: str
    file: str
    before: str
    after: str
    tests: list[str]


def listed() -> list[Mutation]:
    data = tomllib.loads((ROOT / "tests" / "mutations.toml").read_text())
    return [Mutation(**entry) for entry in data["mutation"]]


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        cwd=TREE,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )


def copy_tree() -> None:
    """All files that git does not ignore, and an environment of their own."""
    names = (
        subprocess.check_output(["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT)
        .decode()
        .split("\0")
    )
    wanted = {name for name in names if name and (ROOT / name).is_file()}
    for path in [p for p in TREE.rglob("*") if p.is_file() and ".venv" not in p.parts]:
        if str(path.relative_to(TREE)) not in wanted:
            path.unlink()
    for name in wanted:
        (TREE / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, TREE / name)
    build()


def build() -> None:
    done = run("make", "setup")
    if done.returncode:
        sys.exit(f"mutate: the copy cannot be set up: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def notices(tests: list[str]) -> bool:
    """Whether a test fails. Pytest's other exit codes say that the tests could not be run."""
    pytest = (".venv/bin/python", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider")
    done = run(*pytest, *tests)
    if done.returncode not in (0, 1):
        sys.exit(f"mutate: {' '.join(tests)} cannot be run: {done.stdout[-2000:]}")
    return done.returncode == 1


def verdict(mutation: Mutation) -> str:
    path = TREE / mutation.file
    text = path.read_text()
    if text.count(mutation.before) != 1:
        return f"survived: its text is in {mutation.file} {text.count(mutation.before)} times"
    is_c = mutation.file.startswith(BUILT)
    try:
        path.write_text(text.replace(mutation.before, mutation.after))
        if is_c:
            build()
        since = time.monotonic()
        try:
            noticed = notices(mutation.tests)
        except subprocess.TimeoutExpired:
            noticed = True
        took_s = time.monotonic() - since
        return f"noticed in {took_s:.0f} s" if noticed else "survived"
    finally:
        path.write_text(text)
        if is_c:
            build()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="mutations with this word in their names")
    parser.add_argument("--list", action="store_true", help="show them, and do nothing")
    options = parser.parse_args()
    mutations = [one for one in listed() if options.only in one.name]
    if options.list:
        for mutation in mutations:
            print(f"{mutation.name:<50} {mutation.file}")
        return 0
    TREE.mkdir(parents=True, exist_ok=True)
    copy_tree()
    tests = sorted({test for mutation in mutations for test in mutation.tests})
    if notices(tests):
        sys.exit("mutate: the tests fail without any mistake put in; nothing can be said")
    survived = 0
    for mutation in mutations:
        said = verdict(mutation)
        survived += said.startswith("survived")
        print(f"{mutation.name:<50} {said}", flush=True)
    print(f"{len(mutations) - survived} noticed, {survived} survived")
    return 1 if survived else 0


if __name__ == "__main__":
    raise SystemExit(main())

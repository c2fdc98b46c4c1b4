"""Is the picture the same with and without Headway, and was the program managed?

python -m benchmarks.compat [--write | --packages] [PACKAGE…]

Each program runs twice on Mesa's software renderer and PoCL: as it is, and by `headway run`. What
it leaves, a file or its window, must be the same to the last bit; a third time without Headway says
whether the program repeats itself at all. `--write` puts the table into docs/programs.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.compat.programs import PROGRAMS, Program
from headway.live.api import client

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "programs.md"
HEADWAY = str(Path(sys.executable).with_name("headway"))
BEGIN, END = "<!-- table -->", "<!-- end -->"
LONGEST_S = 120.0
"""Until a program has ended, or nothing on its screen moves."""
STILL_S = 3.0
LOOK_S = 0.25


@dataclass(slots=True)
class Work:
    """What the daemon saw of a program."""

    groups: int = 0
    gpu_ns: int = 0
    frames: int = 0

    def see(self, channels: list[dict[str, Any]]) -> None:
        self.groups = max(self.groups, sum(c["groups"] for c in channels))
        self.gpu_ns = max(self.gpu_ns, sum(c["gpu_ns"] for c in channels))
        self.frames = max(self.frames, sum(c["frames_seen"] for c in channels))


class Screen:
    """A virtual screen whose picture is a file."""

    def __init__(self, folder: Path) -> None:
        reader, writer = os.pipe()
        size = ("-screen", "0", "800x600x24", "-fbdir", str(folder))
        self.server = subprocess.Popen(
            ["Xvfb", "-displayfd", str(writer), "-nolisten", "tcp", *size],
            pass_fds=[writer],
            stderr=subprocess.DEVNULL,
        )
        os.close(writer)
        with os.fdopen(reader) as answer:
            self.display = f":{answer.readline().strip()}"
        self._file = folder / "Xvfb_screen0"

    def rows(self, part: tuple[int, int, int, int] | None) -> list[bytes]:
        """The pixels, row by row; of a part, if that is asked for."""
        data = self._file.read_bytes()
        header = struct.unpack(">25I", data[:100])
        begin, width, height, line = header[0] + 12 * header[19], header[4], header[5], header[12]
        left, top, right, bottom = part or (0, 0, width, height)
        places = (begin + line * y for y in range(top, bottom))
        return [data[place + 4 * left : place + 4 * right] for place in places]

    def close(self) -> None:
        self.server.terminate()
        self.server.wait()


@contextlib.contextmanager
def stage(managed: bool) -> Iterator[tuple[Path, Screen, dict[str, str]]]:
    """A home with nothing in it but the input files, a screen, and a daemon if one is wanted."""
    with tempfile.TemporaryDirectory(prefix="headway-compat-", ignore_cleanup_errors=True) as name:
        home = Path(name)
        shutil.copytree(
            HERE, home, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.py", "__*")
        )
        (home / "run").mkdir(mode=0o700)
        screen = Screen(home)
        env = {
            "PATH": f"{os.environ['PATH']}:/usr/games",
            "HOME": name,
            "LANG": "C.UTF-8",
            "DISPLAY": screen.display,
            "XDG_RUNTIME_DIR": f"{name}/run",
            "XDG_DATA_HOME": f"{name}/share",
            "HEADWAY_DIR": f"{name}/run/headway",
            "LIBGL_ALWAYS_SOFTWARE": "1",
            "SDL_AUDIODRIVER": "dummy",
        }
        daemon = None
        try:
            if managed:
                daemon = subprocess.Popen(
                    [HEADWAY, "daemon", "--display", "none"],
                    env=env,
                    stderr=subprocess.DEVNULL,
                )
                while not (home / "run" / "headway" / "control.sock").exists():
                    time.sleep(0.02)
            yield home, screen, env
        finally:
            if daemon is not None:
                daemon.terminate()
                daemon.wait()
            screen.close()


def picture(program: Program, managed: bool) -> tuple[str, Work]:
    """A digest of what the program left, and what the daemon saw of it."""
    work = Work()
    with stage(managed) as (home, screen, env):
        empty = screen.rows(program.part)
        command = shlex.split(program.command)
        if managed:
            command = [HEADWAY, "run", "--quiet", "--", *command]
        process = subprocess.Popen(
            command,
            cwd=home,
            env=env,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        last, since = empty, time.monotonic()
        try:
            end = time.monotonic() + LONGEST_S
            while time.monotonic() < end:
                if managed:
                    work.see(channels(env))
                if process.poll() is not None:
                    break
                seen = screen.rows(program.part)
                if seen != last:
                    last, since = seen, time.monotonic()
                still = last != empty and time.monotonic() - since > STILL_S
                if program.file is None and still:
                    break
                time.sleep(LOOK_S if program.file is None else LOOK_S / 10)
        finally:
            finish(process)
        if program.file is not None:
            left = home / program.file
            return hashlib.sha256(left.read_bytes()).hexdigest() if left.exists() else "", work
        return hashlib.sha256(b"".join(last)).hexdigest() if last != empty else "", work


def channels(env: Mapping[str, str]) -> list[dict[str, Any]]:
    with contextlib.suppress(OSError):
        status = client.ask(Path(env["HEADWAY_DIR"]), {"do": "status"})["status"]
        found: list[dict[str, Any]] = status["channels"]
        return found
    return []


def finish(process: subprocess.Popen[bytes]) -> None:
    """The program and whatever it started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def verdict(program: Program) -> tuple[str, str]:
    """Whether the picture is the same, and what was managed."""
    if (
        shutil.which(shlex.split(program.command)[0], path=f"{os.environ['PATH']}:/usr/games")
        is None
    ):
        return "not installed", "none"
    alone, _ = picture(program, managed=False)
    beside, work = picture(program, managed=True)
    again, _ = picture(program, managed=False)
    if not alone or not beside:
        same = f"no picture {'with' if alone else 'without'} Headway"
    elif alone == beside:
        same = "the same"
    else:
        same = "different" if alone == again else "different each time"
    seen = [f"{work.gpu_ns / 1e6:.0f} ms of GPU"] if work.gpu_ns else []
    seen += [f"{work.frames} frame{'s' * (work.frames > 1)}"] if work.frames else []
    if not seen and work.groups:
        seen = [f"{work.groups} turn{'s' * (work.groups > 1)}"]
    return same, ", ".join(seen) or "nothing"


def main() -> None:
    if "--packages" in sys.argv[1:]:
        print(*sorted({program.package for program in PROGRAMS}))
        return
    names = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    lines = [
        "| program | what it is | picture | seen by the daemon | command |",
        "|---|---|---|---|---|",
    ]
    fails = 0
    for program in PROGRAMS:
        if names and program.package not in names:
            continue
        same, seen = verdict(program)
        fails += same != "the same" or seen == "nothing"
        version = package_version(program.package)
        shown = program.command.replace("|", "\\|")
        lines.append(
            f"| {program.package} {version} | {program.kind} | {same} | {seen} | `{shown}` |"
        )
        print(lines[-1], flush=True)
    if "--write" in sys.argv[1:]:
        text = PAGE.read_text()
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        PAGE.write_text("\n".join([before + BEGIN, *lines, END + after]))
    sys.exit(min(fails, 1))


def package_version(package: str) -> str:
    done = subprocess.run(
        ["dpkg-query", "--show", "--showformat=${source:Upstream-Version}", package],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


if __name__ == "__main__":
    main()

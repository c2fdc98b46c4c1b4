"""headway launch and headway shell: real programs, restarted with other shares by what they say of
their deadlines. NVIDIA's MPS is played by a folder with something in it and a script."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.daemon_client import DaemonProcess, running_daemon, wait_until

pytestmark = pytest.mark.live

PYTHON = "/usr/bin/python3"
TASK = f"""#!{PYTHON} -SE
import os, signal, sys, time
role, folder, limit = sys.argv[1], sys.argv[2], float(sys.argv[3])
stop = []
if role != "stubborn":
    signal.signal(signal.SIGINT, lambda *_: stop.append(1))
else:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
share = os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]
with open(f"{{folder}}/{{role}}", "a") as file:
    file.write(f"{{share}} {{os.getpid()}}\\n")
print(role, share, flush=True)
while not stop:
    time.sleep(0.01)
    word = "pass"
    if role == "high":
        low = [float(line.split()[0]) for line in open(f"{{folder}}/low")] if os.path.exists(
            f"{{folder}}/low") else [0]
        word = "missed" if low[-1] > limit else "pass"
    sys.stderr.write(word + "\\n")
    sys.stderr.flush()
"""
MPS = """#!/bin/sh
said=$(cat)
echo "$said" >> "$CALLS"
case "$said" in get_server_list) echo 4711 ;; esac
"""


class Stage:
    """A folder with the task, a launcher's environment, and who was started in it."""

    def __init__(self, folder: Path, daemon: DaemonProcess) -> None:
        self.folder = folder
        self.daemon = daemon
        self.calls = folder / "calls"
        self.pipes = folder / "pipes"
        self.task = folder / "task.py"
        self.task.write_text(TASK)
        self.task.chmod(0o755)
        (folder / "bin").mkdir()
        control = folder / "bin" / "nvidia-cuda-mps-control"
        control.write_text(MPS)
        control.chmod(0o755)
        self.pipes.mkdir()
        (self.pipes / "control").touch()
        self.env = {
            **os.environ,
            "HEADWAY_DIR": str(daemon.folder),
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "CALLS": str(self.calls),
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipes),
            "XDG_STATE_HOME": str(folder / "state"),
        }
        self.out, self.err = folder / "out", folder / "err"

    def start(self, *words: str) -> subprocess.Popen[str]:
        with self.out.open("w") as out, self.err.open("w") as err:
            return subprocess.Popen(
                [sys.executable, "-m", "headway", *words],
                env=self.env,
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                text=True,
            )

    def shares(self, role: str) -> list[float]:
        """Of the program in this role: what it had at each of its starts."""
        with contextlib.suppress(FileNotFoundError):
            lines = (self.folder / role).read_text().splitlines()
            return [float(line.split()[0]) for line in lines]
        return []

    def pids(self, role: str) -> list[int]:
        lines = (self.folder / role).read_text().splitlines()
        return [int(line.split()[1]) for line in lines]

    def task_of(self, name: str) -> dict[str, object]:
        tasks = self.daemon.ask(do="share", act="look")["tasks"]
        return next((task for task in tasks if task["task"] == name), {})

    def said(self) -> str:
        return self.err.read_text()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with running_daemon(tmp_path / "run", "--controller", "bisection") as daemon:
        yield Stage(tmp_path, daemon)


@contextlib.contextmanager
def shell(stage: Stage, *options: str) -> Iterator[subprocess.Popen[str]]:
    with stage.start("shell", "--no-gate", *options) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                with contextlib.suppress(OSError):
                    process.communicate("quit\n", timeout=30)


def say(process: subprocess.Popen[str], *lines: str) -> None:
    assert process.stdin is not None
    for line in lines:
        process.stdin.write(line + "\n")
    process.stdin.flush()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


# -- shares that follow deadlines ------------------------------------------------------------------


def test_a_program_is_restarted_with_less_until_the_important_one_meets_its_deadlines(
    stage: Stage,
) -> None:
    with shell(stage) as process:
        say(process, "launch 5 --name high ./task.py high . 30")
        say(process, "launch 1 --name low ./task.py low . 0")
        wait_until(lambda: len(stage.shares("low")) >= 3, "the third start of the less important")
        wait_until(lambda: stage.task_of("low")["share"] == 250, "it has loaded")
        before = stage.task_of("high")["misses"]
        say(process, "ls", "quit")
        process.wait(30)
    assert stage.shares("low")[:3] == [100, 50, 25]
    assert stage.shares("high") == [100]
    assert before != 0
    assert not any(map(is_alive, stage.pids("low") + stage.pids("high"))), "nothing is left"
    assert re.search(r"^low +1 +(25|37\.5)%.*runs$", stage.out.read_text(), re.MULTILINE)
    assert "low 100" in stage.out.read_text().splitlines(), "stdout is the programs' own"
    assert not re.search("^(missed|pass)$", stage.said(), re.MULTILINE)
    assert re.search(r"headway: high ended with exit code 0, \d+ of \d+ jobs missed", stage.said())
    assert "-SE" not in stage.said()
    assert not stage.daemon.ask(do="share", act="look")["tasks"]


def test_launchers_of_their_own_share_the_gpu_as_well(stage: Stage) -> None:
    with stage.start("launch", "5", "--no-gate", "--", "./task.py", "high", ".", "60") as high:
        wait_until(lambda: bool(stage.shares("high")), "the important one runs")
        words = [sys.executable, "-m", "headway", "launch", "1", "--name", "low", "--no-gate"]
        low = subprocess.Popen(
            [*words, "--share", "40%..80%", "./task.py", "low", ".", "0"],
            env=stage.env,
            cwd=stage.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(lambda: len(stage.shares("low")) >= 2, "a second start")
        assert stage.shares("low")[:2] == [80, 40], "within its range"
        for process in (low, high):
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=30)
            assert process.returncode == 0, "the program's own exit code"
    assert not any(map(is_alive, stage.pids("low") + stage.pids("high")))


@pytest.mark.parametrize("dies", [False, True])
def test_without_mps_shares_stay_and_that_is_said_once(stage: Stage, dies: bool) -> None:
    """There is none, or its server dies while programs run: they run on as they are."""
    if not dies:
        (stage.pipes / "control").unlink()
    with shell(stage) as process:
        say(process, "launch 1 --name low ./task.py low . 0")
        wait_until(lambda: bool(stage.shares("low")), "it runs")
        if dies:
            (stage.pipes / "control").unlink()
        say(process, "launch 5 --name high ./task.py high . 30")
        wait_until(lambda: bool(stage.task_of("low").get("stuck")), "the daemon knows")
        misses = stage.task_of("high")["misses"]
        wait_until(lambda: stage.task_of("high")["misses"] != misses, "more misses")
    assert stage.shares("low") == [100]
    assert stage.said().count("without MPS a share cannot isolate processes") == 1


# -- the prompt ------------------------------------------------------------------------------------


class Terminal:
    """A person at `headway shell`."""

    def __init__(self, stage: Stage) -> None:
        self._fd, end = pty.openpty()
        self.shown = ""
        words = [sys.executable, "-m", "headway", "shell", "--no-gate"]
        env = {**stage.env, "TERM": "dumb"}
        self.process = subprocess.Popen(
            words,
            env=env,
            cwd=stage.folder,
            stdin=end,
            stdout=end,
            stderr=end,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so Ctrl-C is a signal
        )
        os.close(end)
        os.set_blocking(self._fd, False)
        self.sees("headway> ")

    def sees(self, text: str) -> None:
        """Wait until this is shown, and go on behind it."""

        def is_shown() -> bool:
            with contextlib.suppress(BlockingIOError, OSError):
                self.shown += os.read(self._fd, 65536).decode(errors="replace")
            return text in self.shown

        wait_until(is_shown, text)
        self.shown = self.shown.partition(text)[2]

    def types(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._fd)


def test_the_prompt_completes_and_remembers_and_control_c_ends_no_program(stage: Stage) -> None:
    with contextlib.closing(Terminal(stage)) as person:
        person.types("lau\t1 --name one ./ta\tlow . 0\n")
        person.sees("headway> ")
        wait_until(lambda: bool(stage.shares("low")), "it runs")
        person.types("half a line\x03")
        person.sees("headway> ")
        person.types("ls\n")
        person.sees("one ")
        person.sees("runs")
        person.sees("headway> ")
        person.types("\x10\x10\n")  # Ctrl-P twice: the line before the last
        person.sees("a task is called 'one' already")
        person.types("kill o\t\n")
        person.sees("one ended with exit code 0")
        person.types("\x04")
        person.process.wait(30)
    assert person.process.returncode == 0
    with contextlib.closing(Terminal(stage)) as person:
        person.types("\x10\n")
        person.sees("no task is called 'one'")
        person.types("quit\n")
        person.process.wait(30)
    history = stage.folder / "state" / "headway" / "shell_history"
    assert "launch 1 --name one ./task.py low . 0" in history.read_text().splitlines()


# -- faults ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("launch 1 ./plain", "plain: may not be executed"),
        ("launch 1 ./nothing", "nothing: no such program"),
        ("launch 1 ./empty", ""),
        ("launch one ./task.py", "PRIO: found 'one', expected a whole number"),
        ("launch 1", "expected a priority and a program, as in launch 5 ./a.out"),
        ("launch 1 --share 200% ./task.py", "--share: found '200%', expected shares from"),
        ("launch 1 --nmae x ./task.py", "found '--nmae', expected one of --name, --share"),
        ("kill nobody", "no task is called 'nobody'"),
        ("set nobody --share 50%", "no task is called 'nobody'"),
        ("dance", "found 'dance', expected one of launch, ls, set"),
        ("ls 5", "ls: found '5', expected nothing more"),
        ('launch 1 "x', "No closing quotation"),
    ],
)
def test_a_wrong_line_is_one_line_and_the_shell_goes_on(stage: Stage, line: str, why: str) -> None:
    (stage.folder / "plain").touch()
    (stage.folder / "empty").write_text("exit 7\n")
    (stage.folder / "empty").chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "headway", "shell", "--no-gate"],
        input=f"{line}\nlaunch 1 --name after true\n",
        env=stage.env,
        cwd=stage.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = done.stderr.splitlines()
    assert "headway: after ended with exit code 0" in lines
    if why:
        (complaint,) = [text for text in lines if text.startswith("headway shell: ")]
        assert why in complaint
        assert done.returncode == 1
    else:  # a script without a first line is a shell's
        assert "headway: empty ended with exit code 7" in lines
        assert done.returncode == 0


def test_a_name_has_one_task(stage: Stage) -> None:
    with shell(stage) as process:
        say(
            process,
            "launch 1 --name one ./task.py low . 0",
            "launch 1 --name one ./task.py low . 0",
        )
        wait_until(lambda: "a task is called 'one' already" in stage.said(), "the refusal")
        done = subprocess.run(
            [sys.executable, "-m", "headway", "launch", "2", "--name", "one", "--", "true"],
            env=stage.env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "a task is called 'one' already; choose another name" in done.stderr
    assert len(stage.pids("low")) == 1


def test_who_floods_stderr_harms_nobody_and_loses_nothing(stage: Stage) -> None:
    flood = (
        f'{PYTHON} -SE -c \'import sys; sys.stderr.write("x" * 99 + chr(10) + "pass" + chr(10))\''
    )
    loop = stage.folder / "flood"
    loop.write_text(f"#!/bin/sh\nyes 'flood\nmissed' | head -n 200000 >&2\n{flood}\n")
    loop.chmod(0o755)
    with shell(stage) as process:
        say(process, "launch 5 --name calm ./task.py low . 0", "launch 9 --name flood ./flood")
        wait_until(lambda: "flood ended" in stage.said()[-10000:], "its end", 60)
        jobs = stage.task_of("calm")["jobs"]
        wait_until(lambda: stage.task_of("calm")["jobs"] != jobs, "the other is heard")
    said = stage.said()
    assert said.count("flood\n") == 100_000
    assert "headway: flood ended with exit code 0, 100000 of 100001 jobs missed" in said


def test_who_dies_at_once_is_told_and_not_started_again(stage: Stage) -> None:
    with shell(stage) as process:
        say(
            process,
            "launch 5 --name dies sh -c 'kill -SEGV $$'",
            "launch 1 --name three sh -c 'exit 3'",
        )
        wait_until(lambda: "three ended with exit code 3" in stage.said(), "its end")
        wait_until(lambda: "dies was ended by SIGSEGV" in stage.said(), "its end")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "headway",
            "launch",
            "5",
            "--no-gate",
            "--",
            "sh",
            "-c",
            "kill -9 $$",
        ],
        env=stage.env,
        check=False,
    )
    assert done.returncode == 128 + signal.SIGKILL


def test_who_ignores_every_request_to_end_is_left_alone_and_reported(stage: Stage) -> None:
    """Not killed inside a kernel; the others run on."""
    with shell(stage, "--patience", "300ms") as process:
        say(process, "launch 5 --name high ./task.py high . 30")
        say(process, "launch 1 --name stubborn ./task.py stubborn . 0")
        say(process, "launch 0 --name low ./task.py low . 0")
        wait_until(lambda: "does not end on SIGINT" in stage.said(), "the report")
        (pid,) = stage.pids("stubborn")
        assert is_alive(pid)
        assert f"stubborn (process {pid}) does not end on SIGINT, SIGTERM and MPS'" in stage.said()
        assert f"terminate_client 4711 {pid}" in stage.calls.read_text().splitlines()
        wait_until(lambda: len(stage.shares("low")) >= 2, "the other has another share")
        say(process, "kill stubborn --force")
        wait_until(lambda: not is_alive(pid), "a person's word is done")
    assert stage.shares("stubborn") == [100]


def test_who_has_no_handler_for_sigint_is_not_restarted(stage: Stage) -> None:
    """SIGINT would end it wherever it is, perhaps inside a kernel."""
    with shell(stage, "--patience", "300ms") as process:
        say(process, "launch 5 --name high sh -c 'while sleep 0.05; do echo missed >&2; done'")
        say(process, "launch 1 --name low sleep 1000")
        wait_until(lambda: "low keeps its share of 100%" in stage.said(), "the report")
        assert "it has no handler for SIGINT" in stage.said()
        assert stage.task_of("low")["stuck"]
        say(process, "kill high --force", "kill low --force")
        wait_until(lambda: not stage.daemon.ask(do="share", act="look")["tasks"], "their ends")


def test_what_a_program_leaves_behind_belongs_to_it(stage: Stage) -> None:
    """A script that ends before what it started, in a session of its own: it is ended as well."""
    script = stage.folder / "forks"
    script.write_text("#!/bin/sh\nsetsid ./task.py low . 0 &\nexit 0\n")
    script.chmod(0o755)
    with shell(stage) as process:
        say(process, "launch 1 ./forks")
        wait_until(lambda: bool(stage.shares("low")), "what it started runs")
        (pid,) = stage.pids("low")
        wait_until(lambda: stage.task_of("forks")["jobs"] != 0, "and is heard")
        say(process, "ls", "quit")
        process.wait(30)
    assert not is_alive(pid)
    assert re.search("^forks .*runs$", stage.out.read_text(), re.MULTILINE)


def test_programs_end_gracefully_with_a_launcher_that_is_killed(stage: Stage) -> None:
    with shell(stage) as process:
        say(process, "launch 1 ./task.py low . 0")
        wait_until(lambda: bool(stage.shares("low")), "it runs")
        (pid,) = stage.pids("low")
        process.kill()
        wait_until(lambda: not is_alive(pid), "its end")
        wait_until(lambda: not stage.daemon.ask(do="share", act="look")["tasks"], "it left")


@pytest.mark.parametrize(
    "words",
    [
        "sh -c './task.py low . 0; true'",
        "setsid -f ./task.py low . 0",
        "env -u HEADWAY_LAUNCHED -u HEADWAY_NAME ./task.py low . 0",
        "sh -c './task.py low . 0 & exec sleep 1000'",
        "./task.py stubborn . 0",
    ],
)
def test_nothing_is_orphaned_by_a_launcher_that_is_killed(stage: Stage, words: str) -> None:
    """Neither what wrapper scripts started, nor those in sessions of their own; who ignores SIGINT
    is ended by MPS."""
    role = "stubborn" if "stubborn" in words else "low"
    with shell(stage, "--patience", "300ms") as process:
        say(process, f"launch 1 --name it {words}")
        wait_until(lambda: bool(stage.shares(role)), "it runs")
        (pid,) = stage.pids(role)
        process.kill()
        process.wait()
        if role == "stubborn":
            word = f"terminate_client 4711 {pid}"
            wait_until(
                lambda: stage.calls.exists() and word in stage.calls.read_text(), "MPS' word"
            )
            os.kill(pid, signal.SIGKILL)
        else:
            wait_until(lambda: not is_alive(pid), "its end")


def test_who_clears_its_environment_is_asked_to_end_as_well(stage: Stage) -> None:
    with shell(stage, "--patience", "300ms") as process:
        say(
            process,
            "launch 1 --name bare env -i CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100 ./task.py low . 0",
        )
        wait_until(lambda: bool(stage.shares("low")), "it runs")
        say(process, "kill bare")
        wait_until(lambda: "bare ended with exit code 0" in stage.said(), "its end")
    assert "left alone" not in stage.said()


def test_the_dead_that_a_program_leaves_behind_are_buried(stage: Stage) -> None:
    forks = "while :; do setsid -f true; sleep 0.01; done"
    with shell(stage) as process:
        say(process, f"launch 1 --name forks sh -c '{forks}'")
        family = Path(f"/proc/{process.pid}/task/{process.pid}/children")

        def adopted() -> list[str]:
            pids = family.read_text().split()
            return [pid for pid in pids if not is_alive(int(pid))]

        wait_until(lambda: bool(adopted()), "dead ones")
        first = set(adopted())
        wait_until(lambda: not first & set(adopted()), "they are buried")
        say(process, "kill forks --force")


def test_programs_run_on_without_the_daemon_and_are_taken_up_by_the_next(
    stage: Stage, tmp_path: Path
) -> None:
    with shell(stage) as process:
        say(process, "launch 5 --name high ./task.py high . 60")
        say(process, "launch 1 --name low ./task.py low . 0")
        wait_until(lambda: stage.shares("low") == [100, 50], "shares move")
        wait_until(lambda: stage.task_of("low")["share"] == 500, "and are there")
        stage.daemon.kill(signal.SIGKILL)
        wait_until(lambda: "programs run on, and their shares stay" in stage.said(), "a line")
        with running_daemon(tmp_path / "run", "--controller", "bisection") as daemon:
            stage.daemon = daemon
            wait_until(lambda: stage.task_of("low").get("jobs", 0) != 0, "they have come back")
            say(process, "quit")
            process.wait(30)
    assert len(stage.pids("high")) == 1

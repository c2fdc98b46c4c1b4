"""`headway run` in bad company: planted daemons, planted modules, folders of others, daemons that
are stopped. Whatever is wrong on Headway's side is one line, and the program runs; with --require
the line is told, and it does not."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from headway.live.identity import launcher
from headway.live.wire import paths
from tests.integration import gl
from tests.integration.command import HEADWAY, ROOT, headway
from tests.integration.daemon_client import running_daemon, wait_until
from tests.integration.users import NOBODY, VICTIM, as_user, need_users

PRELOADED = "echo ${LD_PRELOAD:-nothing}"
EVIL = "/tmp/evil.so"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody may look into, with a short name, outside of pytest's."""
    with tempfile.TemporaryDirectory(prefix="hw-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        for socket_file in folder.glob("**/control.sock"):
            environment = {**os.environ, "HEADWAY_DIR": str(socket_file.parent)}
            headway("stop", env=environment, timeout_s=20)


def run(
    *words: str | Path,
    user: int | None = None,
    cwd: Path = ROOT,
    timeout_s: float = 60,
    command: Sequence[str | Path] = (HEADWAY,),
    folder: str | Path | None = None,
    env: Mapping[str, str | Path] | None = None,
) -> subprocess.CompletedProcess[str]:
    """`headway run` with PATH and this environment alone, as this user."""
    who = [] if user is None else as_user(user)
    given = dict(env or {}) | ({} if folder is None else {"HEADWAY_DIR": folder})
    return subprocess.run(
        [*who, *map(str, command), "run", *map(str, words)],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], **{name: str(value) for name, value in given.items()}},
        text=True,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    (line,) = result.stderr.splitlines()
    return line


# -- planted daemons -------------------------------------------------------------------------------


@contextlib.contextmanager
def fake_daemon(folder: Path, answer: dict[str, Any], think_s: float = 0.0) -> Iterator[Path]:
    """What says this to whoever asks, after having been busy for so long."""
    folder.mkdir(mode=0o700, exist_ok=True)

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.recv(65536)
                end_s = time.monotonic() + think_s
                while time.monotonic() < end_s:
                    pass
                connection.sendall(json.dumps({"ok": True, "token": "0" * 32, **answer}).encode())
                connection.sendall(b"\n")

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(paths.control_socket(folder)))
        listener.listen()
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield folder
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            paths.control_socket(folder).unlink()


def give_away(folder: Path) -> None:
    """As if another user had made all of it, and let everybody in."""
    for path in (folder, *folder.iterdir()):
        os.chown(path, NOBODY, NOBODY)
        path.chmod(0o777)
    folder.chmod(0o755)


def test_what_a_daemon_answers_may_not_load_code_into_a_program(place: Path) -> None:
    with fake_daemon(place / "run", {"environment": {"LD_PRELOAD": EVIL}}) as folder:
        result = run("--", "sh", "-c", PRELOADED, folder=folder)
        assert (result.returncode, result.stdout) == (0, "nothing\n")
        assert "variables that are not known" in one_line(result)
        result = run("--require", "--", "echo", "ran", folder=folder)
        assert (result.returncode, result.stdout) == (2, "")
        one_line(result)


@pytest.mark.parametrize("way", ["HEADWAY_DIR", "XDG_RUNTIME_DIR", "/tmp"])
def test_a_daemon_that_another_user_planted_is_not_listened_to(place: Path, way: str) -> None:
    """In a folder that is named, in one that is inherited, and in the one of last resort."""
    need_users()
    answer = {"environment": {"LD_PRELOAD": EVIL}, "software_gpu": 0}
    last = Path(f"/tmp/headway-{VICTIM}")
    folder = last if way == "/tmp" else place / "headway"
    env: dict[str, str | Path] = {} if way == "/tmp" else {way: folder}
    if way == "XDG_RUNTIME_DIR":
        env = {way: place}
        os.chown(place, NOBODY, NOBODY)
    try:
        with fake_daemon(folder, answer):
            give_away(folder)
            result = run("--no-daemon", "--", "sh", "-c", PRELOADED, user=VICTIM, env=env)
            assert (result.returncode, result.stdout) == (0, "nothing\n")
            assert f"belongs to user {NOBODY}" in result.stderr
            assert len(result.stderr.splitlines()) == (2 if way == "XDG_RUNTIME_DIR" else 1)
            for command in ("status", "stop", "top"):
                other = subprocess.run(
                    [*as_user(VICTIM), HEADWAY, command],
                    env={"PATH": os.environ["PATH"], **{k: str(v) for k, v in env.items()}},
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=60,
                )
                assert other.returncode == 1
                assert "Traceback" not in other.stderr
    finally:
        if way == "/tmp":
            shutil.rmtree(last)


def test_a_daemon_of_roots_is_listened_to_if_its_spec_names_the_user(place: Path) -> None:
    need_users()
    spec = place / "spec.toml"
    spec.write_text(f"[allow]\nuids = [{VICTIM}]\n")
    with running_daemon(place / "run", "--spec", str(spec)) as daemon:
        result = run("--", "sh", "-c", PRELOADED, user=VICTIM, folder=daemon.folder)
        assert (result.stdout, result.stderr) == (f"{launcher.library()}\n", "")


# -- planted modules -------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["run", "daemon --trace", "trace", "doctor"])
def test_nothing_is_imported_from_the_working_folder(place: Path, command: str) -> None:
    """By none of the Pythons that a command starts."""
    work, run_folder, mark = place / "work", place / "run", place / "mark"
    work.mkdir()
    for name in ("click", "msgspec", "json", "socket", "ctypes", "headway", "site"):
        (work / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').write({name!r})\n")
    env = {**os.environ, "HEADWAY_DIR": str(run_folder), "PYTHONPATH": ""}
    if command == "daemon --trace":
        trace = ["daemon", "--until-idle", "--trace", "t.pftrace"]
        process = subprocess.Popen([HEADWAY, *trace], cwd=work, env=env, stderr=subprocess.DEVNULL)
        with process:
            wait_until(paths.control_socket(run_folder).exists, "the daemon starts")
            headway("stop", env=env)
        assert (work / "t.pftrace").exists()
    else:
        words = {
            "run": ("run", "--", "true"),
            "trace": ("trace", "-o", "t.pftrace", "--", "true"),
            "doctor": ("doctor",),
        }
        result = headway(*words[command], cwd=work, env=env)
        assert result.returncode == 0, result.stderr
    assert not mark.exists(), mark.read_text()


def test_a_daemon_that_is_started_works_elsewhere_and_with_nothing_that_is_not_its_own(
    place: Path,
) -> None:
    env = {"NOTIFY_SOCKET": "/run/none", "PYTHONINSPECT": "1", "LD_PRELOAD": "", "MORE": "kept"}
    look = f"cd /proc/$(cat {paths.lock_file(place / 'run')}); readlink cwd; cat environ"
    result = run("--", "sh", "-c", look, folder=place / "run", env=env)
    assert (result.returncode, result.stderr) == (0, "")
    cwd, _, variables = result.stdout.partition("\n")
    assert cwd == "/"
    names = {variable.partition("=")[0] for variable in variables.split("\0")}
    assert not names & {"NOTIFY_SOCKET", "PYTHONINSPECT", "LD_PRELOAD"}
    assert {"MORE", "HEADWAY_DIR"} <= names
    assert (place / "run" / "daemon.log").stat().st_mode & 0o077 == 0


# -- paths -----------------------------------------------------------------------------------------


@pytest.fixture
def installed(place: Path) -> list[str | Path]:
    """A `headway` that lies in a folder whose name has blanks and a colon."""
    folder = place / "my programs: new"
    shutil.copytree(ROOT / "src" / "headway", folder / "headway")
    shutil.copy(launcher.library(), folder / "headway" / "live" / "libheadway.so")
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\n"
    code += "sys.meta_path[:] = filter(callable, sys.meta_path)  # none that finds the sources\n"
    code += "from headway.view.cli import main\nmain()\n"
    (folder / "start").write_text(code)
    return [sys.executable, folder / "start"]


def test_an_interposer_in_a_folder_with_blanks_and_colons_is_loaded_under_require(
    place: Path, installed: list[str | Path]
) -> None:
    with running_daemon(place / "run") as daemon:
        words = ("--require", "--", "grep", "-c", "programs: new.*libheadway.so", "/proc/self/maps")
        result = run(*words, command=installed, cwd=place, folder=daemon.folder)
        assert (result.returncode, result.stderr) == (0, "")
        assert int(result.stdout) > 0


def test_an_interposer_that_the_loader_does_not_take_is_told_under_require(
    place: Path, installed: list[str | Path]
) -> None:
    (Path(installed[1]).parent / "headway" / "live" / "libheadway.so").write_text("no library")
    with running_daemon(place / "run") as daemon:
        words = ("--require", "--", "touch", place / "ran")
        result = run(*words, command=installed, folder=daemon.folder)
        assert result.returncode == 2
        assert "cannot be preloaded" in one_line(result)
        assert not (place / "ran").exists()


def test_a_runtime_folder_and_files_may_have_blanks_and_colons(place: Path) -> None:
    folder, trace, spec = place / "my run: $LIB", place / "a trace: x.pftrace", place / "a: b.toml"
    spec.write_text('[[task]]\nname = "x"\n')
    with running_daemon(folder, "--spec", str(spec), "--trace", str(trace)):
        result = run("--require", "--", "sh", "-c", "echo $HEADWAY_SOCKET", folder=folder)
        assert (result.stdout, result.stderr) == (f"{folder}/clients.sock\n", "")
        assert headway("stop", env={**os.environ, "HEADWAY_DIR": str(folder)}).returncode == 0
        wait_until(trace.exists, "the trace is written")
    assert headway("check", trace).returncode == 0


# -- a program always starts -----------------------------------------------------------------------


def test_a_runtime_folder_of_roots_does_not_stop_an_ordinary_user(place: Path) -> None:
    need_users()
    last = Path(f"/tmp/headway-{VICTIM}")
    try:
        result = run("--", "sh", "-c", PRELOADED, user=VICTIM, env={"XDG_RUNTIME_DIR": "/root"})
        assert result.returncode == 0
        assert result.stdout == f"{launcher.library()}\n"  # another folder was found
        assert one_line(result).startswith("headway: XDG_RUNTIME_DIR is not used: /root: belongs")
        assert str(last) in one_line(result)
    finally:
        subprocess.run([*as_user(VICTIM), HEADWAY, "stop"], env={}, check=False, timeout=60)
        shutil.rmtree(last)


BAD_FOLDERS = ["/dev/null/x", "/proc/headway", "{place}/link", "{place}/open", "/tmp/" + "x" * 120]


@pytest.mark.parametrize("folder", BAD_FOLDERS)
def test_a_bad_folder_is_one_line_and_the_program_runs(place: Path, folder: str) -> None:
    (place / "link").symlink_to(place)
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    folder = folder.format(place=place)
    result = run("--", "sh", "-c", "echo hello; exit 42", folder=folder)
    assert (result.returncode, result.stdout) == (42, "hello\n")
    assert one_line(result).startswith("headway: ")
    assert one_line(result).endswith("; it runs unmanaged")
    result = run("--require", "--", "echo", "hello", folder=folder)
    assert (result.returncode, result.stdout) == (2, "")
    assert one_line(result).endswith("; with --require it does not run")
    result = run("-q", "--", "echo", "hello", folder=folder)
    assert (result.returncode, result.stdout, result.stderr) == (0, "hello\n", "")


def test_a_folder_that_a_user_cannot_write_to_is_one_line_and_the_program_runs(place: Path) -> None:
    need_users()
    result = run("--", "echo", "hello", user=VICTIM, folder=place / "run")
    assert (result.returncode, result.stdout) == (0, "hello\n")
    assert "cannot be made: Permission denied" in one_line(result)


@pytest.mark.parametrize(
    "answer",
    [
        {"token": None},
        {"ok": False, "error": "the daemon could not do that; its log says why", "failed": True},
    ],
    ids=["nonsense", "a mistake of its own"],
)
def test_a_daemon_that_fails_does_not_stop_a_program(place: Path, answer: dict[str, Any]) -> None:
    with fake_daemon(place / "run", answer) as folder:
        result = run("--", "echo", "hello", folder=folder)
        assert (result.returncode, result.stdout) == (0, "hello\n")
        one_line(result)


def test_wrong_words_are_told_whether_a_daemon_is_there_or_not(place: Path) -> None:
    for option, value in (("--priority", "high"), ("--reserve", "lots"), ("--policy", "ptr")):
        words = ("--no-daemon", option, value, "--", "touch", place / "ran")
        result = run(*words, folder=place / "run")
        assert result.returncode == 2
        assert option[2:] in one_line(result)
    assert not (place / "ran").exists()


def test_a_daemon_that_cannot_start_says_why_in_the_line(place: Path) -> None:
    (place / "run").mkdir(mode=0o700)
    paths.lock_file(place / "run").mkdir()  # where it wants a file
    began_s = time.monotonic()
    result = run("--", "echo", "hello", folder=place / "run")
    assert time.monotonic() - began_s < 8  # it is not waited for as for one that is slow
    assert (result.returncode, result.stdout) == (0, "hello\n")
    assert "Is a directory" in one_line(result)


def test_nothing_can_be_said_and_the_program_runs(place: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [HEADWAY, "run", "--", "echo", "hello"],
            env={"PATH": os.environ["PATH"], "HEADWAY_DIR": "/dev/null/x"},
            stdout=subprocess.PIPE,
            stderr=full,
            check=False,
        )
    assert (done.returncode, done.stdout) == (0, b"hello\n")


# -- the program is itself -------------------------------------------------------------------------


def test_exit_codes_are_those_of_env(place: Path) -> None:
    script, bare = place / "script", place / "bare"
    script.write_text("#!/no/such/interpreter\n")
    bare.write_text("exit 7\n")  # no first line: execvp(3) gives it to a shell
    for path in (script, bare):
        path.chmod(0o755)
    plain = place / "plain"
    plain.touch()
    for program in ("no-such-program", place / "none", plain, place, script, bare, "true", "false"):
        bare_env = {"PATH": os.environ["PATH"], "HEADWAY_DIR": str(place / "run")}
        expected = subprocess.run(["env", program], env=bare_env, capture_output=True, check=False)
        result = run("--no-daemon", "-q", "--", program, folder=place / "run")
        assert result.returncode == expected.returncode, program
        assert len(result.stderr.splitlines()) == (result.returncode > 100), result.stderr


def test_signals_descriptors_and_variables_are_as_without_headway(place: Path) -> None:
    """Python ignores SIGPIPE and sets LC_CTYPE for itself; the program is to get neither."""
    look = "grep -E 'Sig(Ign|Blk|Cgt)' /proc/self/status; ls /proc/self/fd; env | sort; umask"
    env = {"PATH": os.environ["PATH"], "HEADWAY_DIR": str(place / "run")}
    words = ("sh", "-c", look)
    plain = subprocess.run(words, env=env, text=True, capture_output=True, check=True)
    result = run("--no-daemon", "-q", "--", *words, folder=place / "run")
    assert result.stdout == plain.stdout


def test_what_follows_the_program_is_its_own(place: Path) -> None:
    result = run("--no-daemon", "-q", "echo", "--name", "x", "--help", folder=place / "run")
    assert result.stdout == "--name x --help\n"
    result = run("--prio", "9", "--", "echo", "ran", folder=place / "run")
    assert (result.returncode, result.stdout) == (2, "")
    assert "no such option --prio; did you mean --priority?" in one_line(result)


# -- daemons that do not answer --------------------------------------------------------------------


def test_a_stopped_daemon_does_not_hold_a_program_up(place: Path) -> None:
    """It is given half a second; the rest is the start of a Python, on a busy machine."""
    with running_daemon(place / "run") as daemon:
        daemon.kill(signal.SIGSTOP)
        try:
            began_s = time.monotonic()
            result = run("--", "echo", "hello", folder=daemon.folder)
            took_s = time.monotonic() - began_s
            assert (result.returncode, result.stdout) == (0, "hello\n")
            assert f"process {daemon.pid}, does not answer: it is stopped" in one_line(result)
            assert took_s < 4
            result = run("--require", "--", "echo", "hello", folder=daemon.folder)
            assert (result.returncode, result.stdout) == (2, "")
        finally:
            daemon.kill(signal.SIGCONT)
        result = run("--require", "--", "echo", "hello", folder=daemon.folder)
        assert (result.returncode, result.stdout, result.stderr) == (0, "hello\n", "")


def test_a_daemon_that_is_busy_is_waited_for(place: Path) -> None:
    """It may take longer than one that is seen to do nothing."""
    with fake_daemon(place / "run", {}, think_s=1.5) as folder:
        result = run("--require", "--", "echo", "hi", folder=folder)
        assert (result.returncode, result.stdout, result.stderr) == (0, "hi\n", "")


def test_another_time_namespace_is_told(place: Path) -> None:
    other = ("unshare", "--time", "--monotonic", "100000")
    if subprocess.run([*other, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no time namespace can be made here")
    with running_daemon(place / "run") as daemon:
        result = run("--", "echo", "hi", command=(*other, HEADWAY), folder=daemon.folder)
        assert (result.returncode, result.stdout) == (0, "hi\n")
        assert "another time namespace" in one_line(result)
        inner = ("--", *other, "sh", "-c", "echo hi")
        result = run(*inner, folder=daemon.folder)
        assert (result.returncode, result.stdout) == (0, "hi\n")
        assert one_line(result).startswith(
            "headway: sh: it runs unmanaged: the daemon is in another"
        )
        code = "import headway\nwith headway.task('x', priority=1), headway.job(): print('done')"
        done = subprocess.run(
            [*other, sys.executable, "-c", code],
            env={**os.environ, "HEADWAY_DIR": str(daemon.folder)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, "done\n")
        assert "another time namespace" in done.stderr
        words = ("--require", "--", "echo", "hi")
        result = run(*words, command=(*other, HEADWAY), folder=daemon.folder)
        assert (result.returncode, result.stdout) == (2, "")


@pytest.mark.parametrize("uid", [0, NOBODY])
def test_a_program_says_nothing_to_a_listener_of_another_users(place: Path, uid: int) -> None:
    """However it came to its environment: no hello to that, nor to anybody's pages after it."""
    need_users()
    gl.compile_program(gl.PROGRAMS / "gates.c", place / "gates", *gl.LIBRARIES["gates"])
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(place / "clients.sock"))
        os.seteuid(uid)
        try:
            listener.listen()
        finally:
            os.seteuid(0)
        env = {"PATH": os.environ["PATH"], "LD_PRELOAD": str(launcher.library())}
        env |= {"HEADWAY_SOCKET": str(place / "clients.sock"), "EGL_PLATFORM": "surfaceless"}
        env["LIBGL_ALWAYS_SOFTWARE"] = "1"
        with subprocess.Popen(
            [place / "gates", "0.2"], env=env, stdout=subprocess.DEVNULL
        ) as program:
            listener.settimeout(20)
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(20)
                heard = connection.recv(4096)
                assert (heard == b"") == (uid == NOBODY)
            assert program.wait(60) == 0

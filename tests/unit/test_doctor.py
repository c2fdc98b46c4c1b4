"""The doctor: what it finds where something is broken. Children are real, also those that hang."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headway.live.identity import launcher
from headway.live.identity.elf import read_elf
from headway.live.identity.program import interpreter_of
from headway.view import doctor
from headway.view.doctor import Finding, checks, daemon, examine, graphics, interposer, system
from headway.view.doctor.program import interposed, libraries


def compiled(folder: Path, name: str, source: str, *options: str) -> Path:
    """A small C program or library."""
    (folder / "source.c").write_text(source)
    target = folder / name
    subprocess.run(["gcc", "-o", target, folder / "source.c", *options], check=True)
    return target


def test_every_check_says_how_it_is_and_what_to_do_about_it() -> None:
    findings = examine(checks())
    assert len(findings) >= 12
    for name, finding in findings.items():
        assert finding.state in ("ok", "warn", "bad"), name
        assert finding.found, name
        assert (finding.state == "ok") == (finding.fix == ""), name
        assert "could not be looked at" not in finding.found, finding.found


def test_a_check_that_fails_stops_nobody() -> None:
    def fails() -> Finding:
        raise RuntimeError("a mistake")

    found = examine({"one": fails, "two": lambda: doctor.ok("fine")})
    assert found["one"].state == "warn"
    assert "RuntimeError: a mistake" in found["one"].found
    assert found["two"] == doctor.ok("fine")


# -- children ------------------------------------------------------------------------------------


def test_a_child_that_hangs_is_ended_with_all_it_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor, "CHILD_S", 1.0)
    mark = tmp_path / "pid"
    began = time.monotonic()
    child = doctor.run_child(["sh", "-c", f"sleep 600 & echo $! > {mark}; wait"])
    assert child.code is None
    assert time.monotonic() - began < 60
    grandchild = Path("/proc", mark.read_text().strip(), "stat")
    end = time.monotonic() + 20
    while grandchild.exists() and grandchild.read_text().split()[2] != "Z":
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_driver_that_hangs_does_not_hang_the_doctor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = "#include <unistd.h>\n__attribute__((constructor)) static void hang(void) { pause(); }"
    compiled(tmp_path, "libEGL.so.1", source, "-shared", "-fPIC")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setattr(doctor, "CHILD_S", 1.0)
    finding = graphics.egl_renderer()
    assert finding.state == "bad"
    assert "no answer within 1 s" in finding.found
    assert "no answer within 1 s" in graphics.gl_libraries().found


def test_a_driver_that_crashes_does_not_crash_the_doctor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = "__attribute__((constructor)) static void crash(void) { __builtin_trap(); }"
    compiled(tmp_path, "libEGL.so.1", source, "-shared", "-fPIC")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.delenv("DISPLAY", raising=False)
    finding = graphics.egl_renderer()
    assert finding.state == "bad"
    assert "no GL context" in finding.found


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "libGL.so.1").write_text("not a library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    finding = graphics.gl_libraries()
    assert finding.state == "warn"  # EGL is still there
    assert "libGL.so.1" in finding.found
    for name in graphics.LIBRARIES:
        (tmp_path / name).write_text("not a library")
    assert graphics.gl_libraries().state == "bad"


def test_a_display_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":54321")
    assert graphics.x_display().state == "warn"
    assert ":54321" in graphics.x_display().found
    assert graphics.glx().state == "warn"
    assert graphics.egl_renderer().state == "ok"  # without a surface
    monkeypatch.delenv("DISPLAY")
    assert graphics.x_display().found == "DISPLAY is not set"


# -- the interposer and the daemon ----------------------------------------------------------------


def test_an_interposer_that_is_missing_or_broken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "libheadway.so"
    broken.write_text("not a library")
    monkeypatch.setattr(launcher, "library", lambda: broken)
    finding = interposer.interposer()
    assert finding.state == "bad"
    assert str(broken) in finding.found

    def missing() -> Path:
        raise launcher.LaunchError("libheadway.so is missing")

    monkeypatch.setattr(launcher, "library", missing)
    assert interposer.interposer().state == "bad"


def test_a_folder_that_others_may_write_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    monkeypatch.setenv("HEADWAY_DIR", str(folder))
    assert daemon.runtime_folder().state == "ok"
    assert not folder.exists()  # it only looked
    folder.mkdir()
    folder.chmod(0o777)
    finding = daemon.runtime_folder()
    assert (finding.state, finding.fix) == ("bad", f"chmod go-w {folder}")
    folder.chmod(0o700)
    assert daemon.runtime_folder() == doctor.ok(str(folder))
    folder.rmdir()
    folder.symlink_to(tmp_path)
    assert daemon.runtime_folder().state == "bad"


def test_a_folder_that_will_be_made_in_one_for_everybody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in /tmp, where nobody can take away what is another user's."""
    everybodys = tmp_path / "tmp"
    everybodys.mkdir()
    monkeypatch.setenv("HEADWAY_DIR", str(everybodys / "run"))
    everybodys.chmod(0o1777)
    assert daemon.runtime_folder().state == "ok"
    everybodys.chmod(0o777)
    assert daemon.runtime_folder().fix == f"chmod go-w {everybodys}"


def test_a_socket_that_nobody_answers_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADWAY_DIR", str(tmp_path))
    assert "none runs" in daemon.daemon().found
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(tmp_path / "control.sock"))
    assert daemon.daemon().state == "warn"
    (tmp_path / "control.sock").unlink()
    (tmp_path / "control.sock").touch()
    assert daemon.daemon().state == "bad"


@pytest.mark.parametrize(("hard", "state"), [(20, "bad"), (100, "warn"), (20_000, "ok")])
def test_few_descriptors(monkeypatch: pytest.MonkeyPatch, hard: int, state: str) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (10, hard))
    assert system.open_files().state == state


# -- programs ------------------------------------------------------------------------------------


def test_a_program_that_can_be_managed_and_what_it_links(tmp_path: Path) -> None:
    program = compiled(
        tmp_path, "plain", "int main(void) { return 0; }", "-lm", "-Wl,--no-as-needed"
    )
    elf = read_elf(program)
    assert elf is not None
    assert "libc.so.6" in elf.needed
    assert not elf.is_static
    assert interposed(str(program)).state == "ok"
    assert "none for a GPU" in libraries(str(program)).found


def test_a_program_that_links_gl(tmp_path: Path) -> None:
    compiled(tmp_path, "libGLESv2.so.2", "int x;", "-shared", "-fPIC", "-Wl,-soname,libGLESv2.so.2")
    source, place = "int main(void) { return 0; }", f"-L{tmp_path}"
    options = ("-Wl,--no-as-needed", place, "-l:libGLESv2.so.2")
    program = compiled(tmp_path, "gles", source, *options)
    assert libraries(str(program)) == doctor.ok("libGLESv2.so.2")
    compiled(tmp_path, "libvulkan.so.1", "int x;", "-shared", "-fPIC", "-Wl,-soname,libvulkan.so.1")
    program = compiled(tmp_path, "vulkan", source, "-Wl,--no-as-needed", place, "-l:libvulkan.so.1")
    assert libraries(str(program)).state == "warn"


def test_a_static_program(tmp_path: Path) -> None:
    program = compiled(tmp_path, "static", "int main(void) { return 0; }", "-static")
    finding = interposed(str(program))
    assert finding.state == "bad"
    assert "statically" in finding.found
    assert "statically" in libraries(str(program)).found


def test_a_program_of_another_word_size(tmp_path: Path) -> None:
    program = tmp_path / "old"
    program.write_bytes(b"\x7fELF\x01\x01" + bytes(100))
    program.chmod(0o755)
    assert "32-bit" in interposed(str(program)).found


def test_a_program_with_rights_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "su"
    shutil.copy(sys.executable, program)
    program.chmod(0o4755)
    assert interposed(str(program)).state == "ok"  # they are ours already
    monkeypatch.setattr(os, "geteuid", lambda: program.stat().st_uid + 1)
    assert "another user's rights" in interposed(str(program)).found
    program.chmod(0o755)
    monkeypatch.setattr(os, "getxattr", lambda path, name: b"\1")
    assert "capabilities" in interposed(str(program)).found


def test_no_program_at_all(tmp_path: Path) -> None:
    assert "no such program" in interposed("no-such-program-anywhere").found
    assert libraries("no-such-program-anywhere").state == "warn"


def test_scripts_stand_for_their_interpreter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    script = tmp_path / "script"
    script.write_text("#!/usr/bin/env -S python3 -I\n")
    assert interpreter_of(script).name == "python3"
    script.write_text("#!/bin/sh -e\n")
    script.chmod(0o755)
    assert interpreter_of(script) == Path("/bin/sh")
    assert "/bin/sh can be managed" in interposed(str(script)).found
    script.write_text(f"#!{script}\n")  # itself, for ever
    assert interpreter_of(script) == script


@pytest.mark.parametrize("length", [4, 6, 40, 63, 64, 100, 500, 5000])
def test_a_cut_off_program_is_told_and_hurts_nobody(tmp_path: Path, length: int) -> None:
    program = compiled(tmp_path, "plain", "int main(void) { return 0; }")
    whole = program.read_bytes()
    program.write_bytes(whole[:length])
    found = examine({"it": lambda: libraries(str(program))})["it"]
    assert found.state in ("ok", "warn")
    assert "could not be looked at" not in found.found

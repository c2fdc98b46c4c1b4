"""The kernel and the limits of this user."""

from __future__ import annotations

import importlib.util
import os
import platform
import resource
import shutil
import socket
from pathlib import Path

from headway.view.doctor import Finding, bad, check, ok, run_python, warn

ENOUGH_DESCRIPTORS = 256
FEWEST_DESCRIPTORS = 64
_SO_PEERPIDFD = 77


@check("sealed shared memory")
def sealed_memory() -> Finding:
    """Exactly what every client gets: two memfds, mapped and sealed."""
    from headway.live.wire.pages import Pages

    try:
        Pages().close()
    except (OSError, AttributeError) as error:
        return bad(
            f"memfd with seals: {error}", f"Linux 5.1 or later; this is {platform.release()}"
        )
    return ok("memfd with F_SEAL_FUTURE_WRITE")


@check("process descriptors")
def process_descriptors() -> Finding:
    """How the daemon learns that a program died."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return bad(f"pidfd_open: {error}", f"Linux 5.3 or later; this is {platform.release()}")
    one, other = socket.socketpair()
    with one, other:
        try:
            number = one.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, 4)
        except OSError:
            return ok("pidfd_open; not yet with the connection (Linux 6.5), which is fine")
    os.close(int.from_bytes(number, "little"))
    return ok("pidfd_open and SO_PEERPIDFD")


@check("open files")
def open_files() -> Finding:
    """A client takes two; a quarter is kept for control."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= ENOUGH_DESCRIPTORS:
        return ok("no limit" if hard == resource.RLIM_INFINITY else f"up to {hard}")
    fix = "raise ulimit -Hn (limits.conf, or LimitNOFILE= of the unit)"
    found = f"up to {hard}: room for about {max(0, hard * 3 // 8 - 8)} programs"
    return warn(found, fix) if hard >= FEWEST_DESCRIPTORS else bad(found, fix)


@check("real-time priority")
def realtime_priority() -> Finding:
    """Tried, not worked out: limits, capabilities and control groups all have a say."""
    code = "import os; os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(2))"
    if run_python(code).code == 0:
        return ok("permitted")
    fix = "add 'USER - rtprio 10' to /etc/security/limits.d, or LimitRTPRIO=10 to the unit"
    return warn("not permitted: a busy machine makes decisions late", fix)


@check("software GPU")
def software_gpu() -> Finding:
    cpus = os.cpu_count() or 1
    if cpus >= 2:
        return ok(f"possible: CPU {cpus - 1} of {cpus} would play the GPU")
    return warn("one CPU only: --software-gpu would share it with everything else", "two CPUs")


@check("NVIDIA driver")
def nvidia() -> Finding:
    """Only looked for; nothing of it is needed."""
    version = Path("/proc/driver/nvidia/version")
    if not version.exists():
        return ok("none, which is fine")
    lines = version.read_text(errors="replace").splitlines()
    return ok(lines[0].removeprefix("NVRM version:").strip() if lines else "there")


@check("CUDA and MPS")
def cuda() -> Finding:
    found = run_python("import ctypes; ctypes.CDLL('libcuda.so.1')").code == 0
    if not found:
        return ok("no libcuda.so.1, which is fine")
    control = shutil.which("nvidia-cuda-mps-control")
    folder = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))  # noqa: S108
    running = "runs" if (folder / "control").exists() else "does not run"
    return ok(f"libcuda.so.1; MPS {running if control else 'is not installed'}")


@check("extras")
def extras() -> Finding:
    if importlib.util.find_spec("matplotlib") is None:
        return warn("no matplotlib: --plot draws nothing", "pip install 'headway[plot]'")
    return ok("matplotlib")

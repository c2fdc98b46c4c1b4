"""The daemon of this user and the folder where it is found."""

from __future__ import annotations

import os

from headway import __version__
from headway.view.advice import about_mps
from headway.view.doctor import Finding, bad, check, ok, warn
from headway.view.unmanaged import started


@check("runtime folder")
def runtime_folder() -> Finding:
    """Whether it can be trusted, or could be made, without making anything."""
    from headway.live.wire import paths

    folder, problem = paths.choose()
    place = folder
    while not os.path.lexists(place):
        place = place.parent
    try:
        paths.check(folder)
    except FileNotFoundError:
        pass  # and what there is of the way to it can be trusted
    except paths.PathError as error:
        found, _, fix = str(error).partition("; run ")
        return bad(found, fix or "remove it, or set HEADWAY_DIR to a folder of this user alone")
    if not os.access(place, os.W_OK | os.X_OK):
        return bad(f"{folder} cannot be made: {place} is not writable", "set HEADWAY_DIR")
    if problem:
        return warn(
            f"{problem}; {folder} is used", "unset XDG_RUNTIME_DIR, or give its folder to this user"
        )
    return ok(str(folder) if place == folder else f"{folder}, which the daemon will make")


@check("daemon")
def daemon() -> Finding:
    from headway.live.api import client
    from headway.live.wire import paths

    folder = paths.runtime_folder()
    if not paths.control_socket(folder).exists():
        return ok("none runs; headway run starts one, or headway daemon")
    try:
        status = client.ask(folder, {"do": "status"})["status"]
    except client.Silent as error:
        return bad(f"{error}", "let it go on (kill -CONT), or end it and start it again")
    except client.NoDaemon as error:
        return warn(f"{error}", "headway daemon, or headway run, starts another in its place")
    except paths.PathError as error:
        return bad(f"{error}", "see the runtime folder, above")
    except client.Refused as error:
        return bad(f"it answers {error}", "headway stop, then start it again")
    who = f"process {status['pid']}, {len(status['channels'])} programs"
    if status.get("version") != __version__:
        found = f"{who}, of version {status.get('version')}; this is {__version__}"
        return warn(found, "headway stop, then start it again")
    if status["spec_problem"]:
        return warn(f"{who}; its spec is not in force: {status['spec_problem']}", "mend the file")
    if status["restarts"]:
        found = f"{who}; its engine had to start over {status['restarts']} times"
        return warn(found, f"report it, with {folder / 'daemon.log'}")
    for entry in status["channels"]:
        if advice := about_mps(entry):
            return warn(f"{who}; {entry['task']}: {advice}", "headway stop, headway daemon --mps")
    passed = [f"{c['task']} ({c['unknown']})" for c in status["channels"] if c["unknown"]]
    if passed:
        found = f"{who}; GPU functions that are not hooked were found by {', '.join(passed)}"
        return warn(found, "headway doctor -- PROGRAM tells which, and why")
    passing = [found.task for found in started(folder) if found.has_vulkan]
    if passing:
        fix = "headway run --require keeps programs from Vulkan"
        return warn(f"{who}; Vulkan passes unmanaged in {', '.join(passing)}", fix)
    return ok(who)

"""Property tests explore with new examples on a person's machine, and repeat the same ones in CI:
a change is judged by what it does, not by what the day's random numbers find in older code."""

from __future__ import annotations

import os
import signal

from hypothesis import settings

settings.register_profile("ci", derandomize=True, print_blob=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

os.environ["XDG_CONFIG_HOME"] = "/nonexistent"
"""Settings of whoever runs the tests are not for the daemons under test."""

signal.signal(signal.SIGINT, signal.default_int_handler)
"""A shell that runs tests in the background has SIGINT ignored, and so would every program under
test that is to be interrupted."""

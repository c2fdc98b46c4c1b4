"""Which profile a GPU has: what was measured on this machine, what comes with Headway, or none."""

from __future__ import annotations

from pathlib import Path

from headway.engine.profile import (
    UNKNOWN,
    DeviceProfile,
    parse_profile,
    shipped_profile,
    shipped_profiles,
)
from headway.engine.reading import BadInput, Problem, one_of, shown
from headway.live.wire.paths import user_folder

MAX_BYTES = 65_536


def folder() -> Path:
    """`headway/profiles` in XDG_CONFIG_HOME, by default ~/.config."""
    return user_folder("XDG_CONFIG_HOME", ".config") / "headway" / "profiles"


def read_profile(file: Path) -> DeviceProfile:
    """A profile in a file; BadInput says what is wrong with the file."""
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes")
        text = data.decode()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BadInput(str(file), [Problem(None, "", why, "a device profile")]) from None
    return parse_profile(text, str(file))


def named(name: str) -> DeviceProfile:
    """The profile that a person means: one of this user's, one that comes with Headway, or a file.
    BadInput says what is wrong."""
    own = folder() / f"{name}.toml"
    if "/" not in name and own.is_file():
        return read_profile(own)
    if name in shipped_profiles():
        return shipped_profile(name)
    if not Path(name).is_file():
        names = sorted({*shipped_profiles(), *(file.stem for file in _files())})
        expected = one_of([*names, "the path of a profile"])
        raise BadInput("--profile", [Problem(None, "", shown(name), expected)])
    return read_profile(Path(name))


def _files() -> list[Path]:
    try:
        return sorted(folder().glob("*.toml"))
    except OSError:
        return []


def of_model(model: str) -> tuple[DeviceProfile, list[BadInput]]:
    """The profile of GPUs that their driver calls so, and what is wrong with files of this user. A
    GPU that nothing is known of has none of the numbers."""
    problems: list[BadInput] = []
    for file in _files() if model else ():
        try:
            profile = read_profile(file)
        except BadInput as error:
            problems.append(error)
            continue
        if profile.name == model:
            return profile, problems
    shipped = (shipped_profile(name) for name in shipped_profiles())
    return next((p for p in shipped if p.name == model), UNKNOWN), problems

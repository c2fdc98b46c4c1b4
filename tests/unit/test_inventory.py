"""Which GPU a program means, and what is known of that GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.engine.profile import UNKNOWN, shipped_profile
from headway.engine.reading import BadInput
from headway.live.devices import profiles
from headway.live.devices.discovery import Found, nvidia_gpus
from headway.live.devices.inventory import MOST, Inventory

H200 = shipped_profile("h200")
TOLD = """Model: \t\t NVIDIA H200
IRQ:   \t\t 123
GPU UUID: \t GPU-0a1b2c3d-0000-0000-0000-00000000000{0}
Video BIOS: \t 96.00.89.00.01
Bus Type: \t PCIe
DMA Size: \t 52 bits
DMA Mask: \t 0xfffffffffffff
Bus Location: \t 0000:{0}9:00.0
Device Minor: \t {0}
GPU Firmware: \t 570.86.15
GPU Excluded:\t No
"""
DURATIONS = ("switch", "shared_switch", "gate", "mark", "open", "launch", "start", "seen", "gap")
UUIDS = [f"GPU-0a1b2c3d-0000-0000-0000-00000000000{n}" for n in range(3)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user's profiles."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    profiles.folder().mkdir(parents=True)
    return profiles.folder()


@pytest.fixture
def two(tmp_path: Path, home: Path) -> Inventory:
    """A machine with two GPUs."""
    for number in (1, 0):
        folder = tmp_path / "proc" / f"0000:{number}9:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(TOLD.format(number))
    return Inventory(nvidia_gpus(tmp_path / "proc"))


def own_profile(home: Path, file: str, model: str, slice_us: int = 1234) -> None:
    lines = [f'name = "{model}"', f'slice = "{slice_us}us"', "multiprocessors = 8"]
    lines += [f'{key} = "1us"' for key in DURATIONS]
    lines += ["copy_bytes_per_us = 1000", "local_bytes_per_us = 9000"]
    (home / file).write_text("\n".join(lines))


def test_the_driver_tells_of_gpus_in_the_order_of_their_places(two: Inventory) -> None:
    assert [(d.found.uuid, d.found.pci) for d in two.devices] == [
        (UUIDS[0], "0000:09:00.0"),
        (UUIDS[1], "0000:19:00.0"),
    ]
    assert [device.profile for device in two.devices] == [H200, H200]


def test_a_machine_without_such_a_driver_has_one_gpu_of_which_nothing_is_known(
    tmp_path: Path, home: Path
) -> None:
    (device,) = Inventory(nvidia_gpus(tmp_path / "nowhere")).devices
    assert device.profile is UNKNOWN
    assert device.profile.slice_ns == 0


@pytest.mark.parametrize(
    ("said", "index"),
    [
        (Found(), 0),
        (Found("NVIDIA H200", UUIDS[1]), 1),
        (Found("whatever", UUIDS[1].upper()), 1),
        (Found(pci="0000:19:00.0"), 1),
        (Found(uuid="GPU-another", pci="0000:19:00.0"), 2),  # a part of it, with its own work
        (Found("Other", "GPU-another"), 2),
    ],
)
def test_programs_say_which_gpu_they_mean(two: Inventory, said: Found, index: int) -> None:
    assert two.place(said).index == index
    assert two.place(said).index == index


def test_the_first_gpu_that_is_named_is_the_one_that_nobody_could_name(home: Path) -> None:
    """OpenGL programs cannot always say which GPU theirs is; on a machine with one there is no
    doubt."""
    inventory = Inventory([])
    assert inventory.place(Found()).index == 0
    assert inventory.place(Found("NVIDIA H200", UUIDS[0])).index == 0
    assert inventory.devices[0].profile is H200
    assert inventory.place(Found(pci="0000:19:00.0")).index == 1
    assert inventory.place(Found("", UUIDS[0], "0000:09:00.0")).index == 0
    assert inventory.place(Found(pci="0000:09:00.0")).index == 0


def test_programs_cannot_name_more_gpus_than_machines_have(home: Path) -> None:
    inventory = Inventory([])
    places = [inventory.place(Found(uuid=f"GPU-{n}")).index for n in range(MOST + 5)]
    assert places == [*range(MOST), 0, 0, 0, 0, 0]


def test_what_was_measured_here_goes_before_what_comes_with_headway(home: Path) -> None:
    own_profile(home, "ours.toml", "NVIDIA H200")
    own_profile(home, "other.toml", "NVIDIA A100", 999)
    devices = [Inventory([Found(name)]).devices[0] for name in ("NVIDIA H200", "NVIDIA A100")]
    assert [device.profile.slice_ns for device in devices] == [1_234_000, 999_000]
    assert Inventory([Found("NVIDIA L4")]).devices[0].profile is UNKNOWN


def test_a_file_that_is_no_profile_is_told_once_and_not_used(home: Path) -> None:
    (home / "broken.toml").write_text("name = 3\n")
    lines: list[str] = []
    inventory = Inventory([Found("NVIDIA H200")], warn=lines.append)
    inventory.place(Found("Other", "GPU-1"))
    assert inventory.devices[0].profile is H200
    (line,) = lines
    assert line.startswith(f"{home / 'broken.toml'}: ")
    assert "found nothing, expected" in line
    assert line.endswith("; the profile is not used")


def test_a_profile_that_is_chosen_is_that_of_all_gpus(home: Path) -> None:
    own_profile(home, "mine.toml", "Mine")
    inventory = Inventory([Found("NVIDIA H200")], profiles.named("mine"))
    inventory.place(Found("Other", "GPU-1"))
    assert {device.profile.name for device in inventory.devices} == {"Mine"}
    assert profiles.named("h200") is H200
    assert profiles.named(str(home / "mine.toml")).name == "Mine"


def test_a_profile_that_is_not_there_is_one_line_with_those_that_are(home: Path) -> None:
    own_profile(home, "mine.toml", "Mine")
    with pytest.raises(BadInput) as raised:
        profiles.named("h20")
    assert str(raised.value).startswith("--profile: found 'h20', ")
    assert all(name in str(raised.value) for name in ("h200", "mine", "the path of a profile"))
    assert "\n" not in str(raised.value)

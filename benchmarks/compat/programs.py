"""The programs that `make compat` tries: ordinary ones from Debian, as their packages have them."""

from __future__ import annotations

from dataclasses import dataclass

FFMPEG = (
    "ffmpeg -v error -init_hw_device opencl=gpu:0.0 -filter_hw_device gpu -f lavfi"
    " -i testsrc=d=1:s=320x240 -vf format=rgba,hwupload,avgblur_opencl=5,hwdownload,format=rgba"
    " -f framemd5 frames.txt"
)
LINES = (
    r"""sh -c 'for i in 1 2 3 4 5; do printf "\033[3${i}mline $i\033[0m\n"; done; exec sleep 999'"""
)


@dataclass(frozen=True, slots=True)
class Program:
    """What is tried, and what it leaves: a file, or its window, looked at when nothing moves."""

    kind: str
    package: str
    command: str
    file: str | None = None
    part: tuple[int, int, int, int] | None = None
    """Of a screen on which something always moves: the left, top, right and bottom of the rest."""


PROGRAMS = (
    Program("game", "dreamchess", "dreamchess", part=(80, 60, 310, 540)),
    Program("game engine", "love", "love game", "share/love/game/shot.ppm"),
    Program(
        "player",
        "mpv",
        "mpv --no-config --vo=gpu --gpu-context=x11egl --no-audio --pause --osd-level=0 av://lavfi:testsrc",
    ),
    Program("browser, WebGL", "firefox-esr", "firefox-esr --no-remote --kiosk page.html"),
    Program("GTK 3", "gtk-3-examples", "gtk3-demo --run=glarea"),
    Program("GTK 4", "gtk-4-examples", "gtk4-demo --run=css_basics"),
    Program("Qt 5, Qt Quick", "qmlscene", "qmlscene scene.qml", "scene.png"),
    Program(
        "terminal",
        "kitty",
        f"kitty --config NONE -o cursor_blink_interval=0 -o shell_integration=disabled {LINES}",
    ),
    Program("terminal", "alacritty", f"alacritty -o cursor.style=Beam -e {LINES}"),
    Program("CAD", "openscad", "openscad -o model.png --imgsize 320,240 model.scad", "model.png"),
    Program("VTK", "f3d", "f3d --output=model.png --resolution=320,240 model.obj", "model.png"),
    Program("OpenCL", "ffmpeg", FFMPEG, "frames.txt"),
    Program(
        "OpenCL",
        "hashcat",
        "hashcat --force -D 1 -m 0 -a 3 --potfile-disable -o found.txt"
        " 900150983cd24fb0d6963f7d28e17f72 ?l?l?l",
        "found.txt",
    ),
)

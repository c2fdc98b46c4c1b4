"""The interposer's picture of OpenGL, EGL and GLX against Khronos' registry: a wrapper with another
signature than its function breaks programs, and what has no wrapper passes the gate unseen."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from importlib.metadata import files
from pathlib import Path
from xml.etree import ElementTree as ET

SHIM = Path(__file__).parents[2] / "shim"
KINDS = (
    "WORK",
    "STATE",
    "SUBMIT",
    "FENCE",
    "SWAP",
    "READ",
    "IMPLICIT",
    "MAP",
    "BIND",
    "END",
    "DISPLAY",
    "MADE",
    "BEFORE",
)
HOOKED = re.compile(r"HOOKED (\w+) \[(.*?)\] \[(.*?)\] \[(.*?)\] END")
NOT_OF_KHRONOS = {"XOpenDisplay", "XCloseDisplay"}
WORK = re.compile(
    r"""gl(Multi)?(Draw|ModeDraw)|gl(Blit|Dispatch|CallList|Accum|Bitmap|Rect[dfisx]|EvalMesh)
    |glClear($|Buffer|Named|Tex)|glCopy|gl\w*Compressed\w*Image|gl(Multi)?Tex(ture)?(Sub)?Image
    |glGenerate\w*Mipmap|gl(Stencil|Cover)\w*Path|glReadn?Pixels|glGetn?(Compressed)?(Multi)?Tex\w*Image
    |glGet(Named)?BufferSubData|glMap\w*Buffer|glGetQueryObject|glFinish|glFlush$|glBindFramebuffer
    |glFenceSync|glClientWaitSync|eglSwapBuffers|glXSwapBuffers""",
    re.VERBOSE,
)
"""What gives the GPU something to do, lets it begin, or waits for it."""
NO_WORK = re.compile(
    r"""glDrawBuffer|glCopyPathNV|glCopy\w*(Color|Convolution)|glTex(ture)?(Sub)?Image\w*Multisample
    |glAccumx|glBitmapx|glMulticast|glFinish(Async|Texture|Render)""",
    re.VERBOSE,
)
"""Begins like work and is none: choices, storage without data, and what no driver has any more."""
GONE = re.compile(r"(APPLE|ATI|SUN|IBM|SGIX?|SGIS)$")
"""Vendors whose own drivers do not exist for Linux any more."""


@dataclass(frozen=True)
class Command:
    result: str
    types: tuple[str, ...]
    alias: str | None


def registry() -> dict[str, Command]:
    """Every command of OpenGL, OpenGL ES, EGL and GLX."""
    found: dict[str, Command] = {}
    for name in ("gl", "egl", "glx"):
        (file,) = [f for f in files("glad2") or [] if f.name == f"{name}.xml"]
        for node in ET.parse(str(file.locate())).getroot().iter("command"):
            prototype, alias = node.find("proto"), node.find("alias")
            if prototype is None:
                continue
            called = prototype.findtext("name", "")
            found[called] = Command(
                type_of("".join(prototype.itertext())),
                tuple(type_of("".join(each.itertext())) for each in node.findall("param")),
                None if alias is None else alias.get("name"),
            )
    return found


WIDTHS = {
    "void": "nothing",
    "GLfloat": "float", "GLclampf": "float", "GLdouble": "double", "GLshort": "16", "GLubyte": "8",
    "GLboolean": "8", "Bool": "32", "int": "32", "unsigned": "32", "EGLint": "32",
    "EGLBoolean": "32", "EGLenum": "32", "GLint": "32", "GLuint": "32", "GLsizei": "32",
    "GLenum": "32", "GLbitfield": "32", "GLfixed": "32", "GLclampx": "32",
}  # fmt: skip


def type_of(declaration: str) -> str:
    """How a parameter is passed: all of it that a caller and a wrapper must agree on."""
    words = re.findall(r"\w+|\*|\[", declaration)
    if "*" in words or "[" in words:
        return "64"
    words = [word for word in words if word not in ("const", "struct")]
    if words[:2] == ["unsigned", "long"]:
        return "64"
    return WIDTHS.get(words[0], "64")  # handles, sizes and words of 64 bits


def hooks(*options: str) -> dict[str, tuple[str, list[str], list[str]]]:
    """Of each hook: what it returns, its parameters and the arguments that it passes on."""
    lines = [
        f"#define {kind}(name, params, args, last) HOOKED name [void] [params] [args] END"
        if kind in ("WORK", "STATE")
        else f"#define {kind}(ret, name, params, args, ...) HOOKED name [ret] [params] [args] END"
        for kind in KINDS
    ]
    source = "\n".join([*lines, f'#include "{SHIM / "gl" / "hooks.def"}"', ""])
    command = ["gcc", "-E", "-P", *options, "-x", "c", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=True)
    split = {}
    for name, result, parameters, arguments in HOOKED.findall(done.stdout):
        given = [p.strip() for p in parameters.strip("() ").split(",") if p.strip() != "void"]
        passed = [a.strip() for a in arguments.strip("() ").split(",") if a.strip()]
        split[name] = (result, given, passed)
    return split


COMMANDS = registry()
HOOKS = hooks()
MONITORED = hooks("-DHW_PREDICT")
"""Those, and what is hooked for predictions alone."""


def test_every_wrapper_has_the_signature_of_its_function() -> None:
    assert len(HOOKS) > 250
    assert len(MONITORED) > len(HOOKS) + 50
    assert {*MONITORED} - {*COMMANDS} == NOT_OF_KHRONOS
    differ = {}
    for name in {*MONITORED} - NOT_OF_KHRONOS:
        result, parameters, _ = MONITORED[name]
        ours = (type_of(f"{result} x"), tuple(type_of(each) for each in parameters))
        if ours != (COMMANDS[name].result, COMMANDS[name].types):
            differ[name] = ours, COMMANDS[name]
    assert differ == {}


def test_a_wrapper_passes_on_what_it_is_given_in_this_order() -> None:
    for name, (_, parameters, arguments) in MONITORED.items():
        assert [re.findall(r"\w+", each)[-1] for each in parameters] == arguments, name


def test_all_names_of_one_function_are_hooked_or_none() -> None:
    apart = [
        name
        for name, command in COMMANDS.items()
        if command.alias and (command.alias in HOOKS) != (name in HOOKS)
    ]
    assert apart == []


def test_every_command_that_is_work_is_hooked() -> None:
    missing = [
        name
        for name in COMMANDS
        if WORK.match(name)
        and name not in HOOKS
        and not NO_WORK.match(name)
        and not GONE.search(name)
    ]
    assert missing == []


def test_the_survey_calls_nothing_of_opengl_work_that_this_test_does_not() -> None:
    """What `headway doctor` tells as passed by is what the list above would have to name."""
    text = (SHIM / "core" / "survey.c").read_text()
    begins = re.search(r"work\[\] = \{(.*?)NULL", text, re.DOTALL)
    assert begins is not None
    for prefix in re.findall(r'"((?:gl|egl)\w+)"', begins[1]):
        assert any(WORK.match(name) for name in COMMANDS if name.startswith(prefix)), prefix

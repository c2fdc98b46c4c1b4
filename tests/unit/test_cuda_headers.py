"""The interposer's picture of the CUDA driver against NVIDIA's own headers: a wrapper with another
signature than the function it stands for would break the program."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from importlib.metadata import files
from pathlib import Path

import pytest

SHIM = Path(__file__).parents[2] / "shim" / "cuda"
KNOWN_VERSION = int(re.findall(r"KNOWN_VERSION (\d+)", (SHIM / "cuda.c").read_text())[0])
PER_THREAD_SINCE = 7000
"""Twins for the per-thread default stream came with this version."""
WIDE_SINCE = 3020
"""Addresses and sizes of 64 bits came with this one."""
TYPEDEF = re.compile(r"typedef CUresult ?\(CUDAAPI \*PFN_(\w+?)_v(\d+)(_pt[sd][sz])?\)\((.*?)\);")
HOOKED = re.compile(r"HOOKED (\d+) (\w+) \((.*?)\) END")
OLD = {
    "cuStreamDestroy": 2000,
    "cuCtxDestroy": 2000,
    "cuDevicePrimaryCtxReset": 7000,
    "cuDevicePrimaryCtxRelease": 7000,
}
"""Versions that went before those hooked, by which nobody has got a function for many years."""
NO_WORK = re.compile(
    r"""cuStream(Get|Set|Copy|Is|Update|AddCallback|AttachMem|Begin|End|Create|WaitEvent|Wait|Write|Batch)
    |cuEventRecord|cuLaunchHostFunc|cuUserObject|cuThread|cuDevResource|cuGreenCtx|cuCtxRecord|cuCtxWait
    |cuMem(Alloc|Free|Prefetch|Map|Discard|AdviseBatch|DiscardAndPrefetch)|cuSignalExternal|cuWaitExternal
    |cuGraphUpload|cuGraphics(Map|Unmap)|cuGL|cuVDPAU|cuEGL|cuCheckpoint|cuLogs|cuMulticast""",
    re.VERBOSE,
)
"""Functions with a stream that give the GPU nothing to do that is worth a gate: questions, marks,
allocations, callbacks to the host, and memory that moves when it is used."""
OLD_LAUNCHES = {"cuLaunch", "cuLaunchGrid", "cuLaunchGridAsync", "cuParamSetv"}
"""Of CUDA 3, for which there are no new programs."""


@dataclass(frozen=True)
class Hook:
    since: int
    name: str
    parameters: str

    @property
    def plain(self) -> str:
        return re.sub(r"(_v\d)?(_pt[sd][sz])?$", "", self.name)

    @property
    def twin(self) -> str:
        found = re.search(r"_pt[sd][sz]$", self.name)
        return found[0] if found else ""

    @property
    def key(self) -> tuple[str, int, str]:
        """What NVIDIA calls its type."""
        since = max(self.since, PER_THREAD_SINCE) if self.twin else self.since
        return self.plain, since, self.twin


def hooks() -> list[Hook]:
    source = "#define HOOK(since, name, per_thread, params, args) HOOKED since name params END\n"
    source += f'#include "{SHIM / "cuda.def"}"\n'
    done = subprocess.run(
        ["gcc", "-E", "-P", "-x", "c", "-"],
        input=source,
        capture_output=True,
        text=True,
        check=True,
    )
    found = HOOKED.findall(done.stdout)
    return [Hook(int(since), name, parameters) for since, name, parameters in found]


@pytest.fixture(scope="module")
def include() -> Path:
    """Where the headers are; they come with a package of the development extra."""
    (header,) = [f for f in files("nvidia-cuda-runtime") or [] if f.name == "cudaTypedefs.h"]
    return Path(str(header.locate())).parent


@pytest.fixture(scope="module")
def types(include: Path) -> dict[tuple[str, int, str], str]:
    """Every version of every function, with its parameters."""
    text = (include / "cudaTypedefs.h").read_text()
    return {(n, int(v), twin): params for n, v, twin, params in TYPEDEF.findall(text)}


def type_names(parameters: str) -> list[str]:
    """The types of a list of parameters, without their names."""
    if parameters.strip() in ("", "void"):
        return []
    return [re.sub(r"\b\w+$", "", one.strip()).strip() for one in parameters.split(",")]


def run(tmp_path: Path, include: Path, source: str) -> list[str]:
    file, program = tmp_path / "ask.c", tmp_path / "ask"
    head = (
        "#include <cudaTypedefs.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n"
    )
    file.write_text(f"{head}struct launch;\nstruct hw_attribute;\n{source}")
    subprocess.run(["gcc", "-w", f"-I{include}", "-o", str(program), str(file)], check=True)
    return subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.split()


def sizes(tmp_path: Path, include: Path, lists: list[str]) -> list[list[int]]:
    """How large each parameter of each list is: that, and whether it is a float, is all that a call
    depends on here, and there are no floats."""
    lines = []
    for parameters in lists:
        assert not re.search(r"\b(float|double)\s+\w+$", parameters)
        shown = "".join(f'printf("%zu,", sizeof({name}));' for name in type_names(parameters))
        lines.append(f'{shown}printf("-\\n");')
    answers = run(tmp_path, include, "int main(void) {" + "\n".join(lines) + "return 0;}")
    return [[int(size) for size in answer.rstrip("-").split(",") if size] for answer in answers]


def test_every_wrapper_has_the_signature_of_the_function_it_stands_for(
    tmp_path: Path, include: Path, types: dict[tuple[str, int, str], str]
) -> None:
    ours = hooks()
    assert len(ours) > 80
    assert [hook.name for hook in ours if hook.key not in types] == []
    real = sizes(tmp_path, include, [types[hook.key] for hook in ours])
    found = sizes(tmp_path, include, [hook.parameters for hook in ours])
    differ = {hook.name: (a, b) for hook, a, b in zip(ours, real, found, strict=True) if a != b}
    assert differ == {}


def test_every_version_up_to_the_newest_known_one_is_hooked(
    types: dict[tuple[str, int, str], str],
) -> None:
    """Of the functions that are hooked; what is newer passes by and is counted."""
    ours = hooks()
    known, plain = {hook.key for hook in ours}, {hook.plain for hook in ours}
    wide = {hook.plain for hook in ours if hook.since == WIDE_SINCE}
    missing = [
        key
        for key in types
        if key[0] in plain - (wide if key[1] < WIDE_SINCE else set())
        and key not in known
        and key[1] <= KNOWN_VERSION
        and OLD.get(key[0]) != key[1]
    ]
    assert missing == []


def test_every_function_with_a_stream_is_hooked_or_known_to_be_no_work(
    types: dict[tuple[str, int, str], str],
) -> None:
    plain = {hook.plain for hook in hooks()} | OLD_LAUNCHES
    streams = {name for (name, _, _), parameters in types.items() if "CUstream " in parameters}
    assert sorted(name for name in streams - plain if not NO_WORK.match(name)) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "members"),
    [
        (
            "struct launch",
            "CUlaunchConfig",
            {
                "grid[0]": "gridDimX",
                "grid[2]": "gridDimZ",
                "block[0]": "blockDimX",
                "block[2]": "blockDimZ",
                "shared": "sharedMemBytes",
                "stream": "hStream",
                "attributes": "attrs",
                "count": "numAttrs",
            },
        ),
        ("struct hw_attribute", "CUlaunchAttribute", {"id": "id"}),
        (
            "struct resource",
            "CUdevResource",
            {
                "type": "type",
                "sm.sms": "sm.smCount",
                "sm.least": "sm.minSmPartitionSize",
                "sm.alignment": "sm.smCoscheduledAlignment",
                "sm.flags": "sm.flags",
                "next": "nextResource",
            },
        ),
        (
            "union op",
            "CUstreamBatchMemOpParams",
            {
                f"word.{ours}": f"{call}.{theirs}"
                for call in ("waitValue", "writeValue")
                for ours, theirs in {
                    "operation": "operation",
                    "address": "address",
                    "value": "value64",
                    "flags": "flags",
                    "alias": "alias",
                }.items()
            },
        ),
    ],
)
def test_structures_that_are_read_or_written_are_laid_out_alike(
    tmp_path: Path, include: Path, ours: str, theirs: str, members: dict[str, str]
) -> None:
    code = "\n".join((SHIM / name).read_text() for name in ("cuda.c", "green.h", "green.c"))
    text = re.search(rf"{ours} \{{.*?\n\}};", code, re.DOTALL)
    assert text is not None
    shown = "".join(
        f'printf("%zu %zu\\n", offsetof({ours}, {a}), offsetof({theirs}, {b}));'
        for a, b in members.items()
    )
    answers = run(tmp_path, include, f"{text[0]}\nint main(void) {{{shown}return 0;}}")
    assert answers[::2] == answers[1::2]
    if ours != "struct launch":  # the driver takes arrays of it, or writes all of it
        both = f'printf("%zu %zu", sizeof({ours}), sizeof({theirs}));'
        one, other = run(tmp_path, include, f"{text[0]}\nint main(void) {{{both}return 0;}}")
        assert one == other


CONSTANTS = {
    "SUCCESS": "CUDA_SUCCESS",
    "NOT_FOUND": "CUDA_ERROR_NOT_FOUND",
    "NOT_READY": "CUDA_ERROR_NOT_READY",
    "ALREADY_REGISTERED": "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
    "NOT_PERMITTED": "CUDA_ERROR_NOT_PERMITTED",
    "NOT_SUPPORTED": "CUDA_ERROR_NOT_SUPPORTED",
    "LEGACY": "CU_STREAM_LEGACY",
    "PER_THREAD": "CU_STREAM_PER_THREAD",
    "PER_THREAD_FLAG": "CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM",
    "RELAXED": "CU_STREAM_CAPTURE_MODE_RELAXED",
    "AWAIT": "CU_STREAM_MEM_OP_WAIT_VALUE_32",
    "WRITE": "CU_STREAM_MEM_OP_WRITE_VALUE_32",
}


@pytest.mark.parametrize("ours", list(CONSTANTS))
def test_numbers_mean_what_nvidia_means_by_them(tmp_path: Path, include: Path, ours: str) -> None:
    found = re.search(rf"^#define {ours} (.+)$", (SHIM / "cuda.c").read_text(), re.MULTILINE)
    assert found is not None
    shown = f'printf("%ld %ld", (long)({found[1]}), (long)({CONSTANTS[ours]}));'
    one, other = run(tmp_path, include, f"int main(void) {{{shown}return 0;}}")
    assert one == other

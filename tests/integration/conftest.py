"""A display and built programs, once per session, for tests that run GL and CUDA programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration import cuda, gl


@pytest.fixture(scope="session")
def display() -> Iterator[str]:
    assert not gl.missing(), f"missing: {gl.missing()}; scripts/install-packages has them"
    with gl.xvfb() as name:
        yield name


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gl.compile_programs(tmp_path_factory.mktemp("programs"))


@pytest.fixture
def bare_stage(display: str, built: Path) -> Iterator[gl.Stage]:
    """No daemon runs there yet."""
    with gl.stage(display, built) as made:
        yield made


@pytest.fixture
def stage(bare_stage: gl.Stage) -> gl.Stage:
    bare_stage.daemon()
    return bare_stage


@pytest.fixture(scope="session")
def cuda_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cuda.compile_all(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def gpu(cuda_programs: Path, tmp_path: Path) -> cuda.Gpu:
    """A software GPU that nobody uses yet."""
    return cuda.Gpu(cuda_programs, tmp_path / "gpu")


@pytest.fixture
def spin() -> str:
    """For how long the daemon looks at pages; tests that want both have it parametrized."""
    return "0ms"


@pytest.fixture
def window() -> str:
    """How much work less important programs may have in flight."""
    return "200us"


@pytest.fixture
def module() -> str:
    """What the daemon is started as."""
    return "headway"


@pytest.fixture
def managed(
    gpu: cuda.Gpu, tmp_path: Path, spin: str, window: str, module: str
) -> Iterator[cuda.Managed]:
    """The GPU with a daemon that decides who uses it."""
    options = ("--spin", spin, "--window", window)
    with cuda.managed(gpu, tmp_path / "run", *options, module=module) as made:
        yield made

"""One node of Ray on a real NVIDIA GPU: a worker's CUDA work is its claim's.

python -m pytest -m gpu tests/gpu/test_fleet_gpu.py
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

import headway
from tests.integration.ray_nodes import cluster, view, wait_until

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore"),  # Ray's own, and PyTorch's
]


class Worker:
    """Multiplies matrices, and tells which GPU it was given."""

    def work(self, seconds: float) -> dict[str, Any]:
        import importlib
        import time

        torch = importlib.import_module("torch")
        matrix = torch.rand(2048, 2048, device="cuda")
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            matrix = matrix @ matrix / 2048
            torch.cuda.synchronize()
        return {"visible": os.environ["CUDA_VISIBLE_DEVICES"], "count": torch.cuda.device_count()}


def test_a_worker_on_a_real_gpu_is_the_task_of_its_claim() -> None:
    import ray

    if shutil.which("nvidia-smi") is None:
        pytest.skip("this test needs an NVIDIA GPU: no nvidia-smi here")
    pytest.importorskip("torch")
    with (
        tempfile.TemporaryDirectory(prefix="hw") as folder,
        cluster(Path(folder), ("one",), gpus=0),
    ):
        (node,) = view()["nodes"]
        assert all(gpu["model"].startswith("NVIDIA") for gpu in node["gpus"])
        made = headway.fleet.remote(name="matrices", priority=9, reserve="6ms/20ms", num_cpus=0)
        actor = made(Worker).remote()
        running = actor.work.remote(5.0)

        def tasks() -> list[dict[str, Any]]:
            found = [task for gpu in view()["nodes"][0]["gpus"] for task in gpu["tasks"]]
            return [task for task in found if task["name"] == "matrices"]

        (task,) = wait_until(tasks, "the daemon serves the worker")
        assert (task["priority"], task["capacity_ns"], task["period_ns"]) == ("9", 6e6, 20e6)
        found = ray.get(running, timeout=60)
        assert found["count"] == 1
        assert found["visible"].startswith("GPU-")
        ray.kill(actor)

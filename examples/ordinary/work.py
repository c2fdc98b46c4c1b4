#!/usr/bin/env python3
"""One ordinary program: a workload of some library, done as jobs.

    work.py WORKLOAD

It says a JSON line when it is ready, and one for every line it is told: AT SECONDS PERIOD_MS
POISSON SEED, as benchmarks/gpu/plain.cu has them. Without a period a job begins as soon as the last
one is done. Random weights, inputs and arrivals are the same in every process. No workload knows of
any scheduler.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

Job = Callable[[], Any]
"""Does the work, waits for the result, and returns it."""
WORKLOADS: dict[str, Callable[[], Job]] = {}
WARM_UP = 4


def workload(make: Callable[[], Job]) -> Callable[[], Job]:
    WORKLOADS[make.__name__] = make
    return make


# -- PyTorch and what is built on it -----------------------------------------------------------


def _torch() -> Any:
    import torch

    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = False
    return torch


@workload
def detection() -> Job:
    """Faster R-CNN of torchvision: it reads sizes back many times in a job."""
    torch = _torch()
    import torchvision

    make = torchvision.models.detection.fasterrcnn_resnet50_fpn
    model = make(weights=None, weights_backbone=None).cuda().eval()
    picture = torch.rand(3, 480, 640, device="cuda")

    def job() -> Any:
        with torch.inference_mode():
            return model([picture])[0]["boxes"].cpu().numpy()

    return job


@workload
def segmentation() -> Job:
    torch = _torch()
    import torchvision

    model = torchvision.models.segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None)
    model = model.cuda().half().eval()
    picture = torch.rand(1, 3, 480, 640, device="cuda").half()

    def job() -> Any:
        with torch.inference_mode():
            return model(picture)["out"].argmax(1).to(torch.uint8).cpu().numpy()

    return job


@workload
def decoding() -> Job:
    """GPT-2 of transformers, eight tokens, eager: a synchronisation for each of them."""
    torch = _torch()
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config()).cuda().half().eval()
    prompt = torch.randint(0, 50000, (1, 32), device="cuda")
    mask = torch.ones_like(prompt)

    def job() -> Any:
        with torch.inference_mode():
            tokens = model.generate(
                prompt,
                attention_mask=mask,
                min_new_tokens=8,
                max_new_tokens=8,
                do_sample=False,
                pad_token_id=0,
            )
            return tokens.cpu().numpy()

    return job


def _encoder() -> tuple[Any, Any, Any]:
    torch = _torch()
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(), add_pooling_layer=False).cuda().half().eval()
    return torch, model, torch.randint(0, 30000, (8, 128), device="cuda")


@workload
def encoding() -> Job:
    torch, model, tokens = _encoder()

    def job() -> Any:
        with torch.inference_mode():
            return model(tokens).last_hidden_state[:, 0].float().cpu().numpy()

    return job


@workload
def encoding_compiled() -> Job:
    torch, model, tokens = _encoder()
    compiled = torch.compile(model)

    def job() -> Any:
        with torch.inference_mode():
            return compiled(tokens).last_hidden_state[:, 0].float().cpu().numpy()

    return job


@workload
def encoding_graph() -> Job:
    """The same as one CUDA graph: bound by the GPU."""
    torch, model, tokens = _encoder()
    with torch.inference_mode():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                model(tokens)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = model(tokens).last_hidden_state[:, 0].float()

    def job() -> Any:
        graph.replay()
        return result.cpu().numpy()

    return job


@workload
def diffusion() -> Job:
    """Four steps of a small U-Net, as a diffusion model has it."""
    torch = _torch()
    nn = torch.nn

    def block(wide: int, wider: int) -> Any:
        return nn.Sequential(nn.GroupNorm(8, wide), nn.SiLU(), nn.Conv2d(wide, wider, 3, padding=1))

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [64, 128, 256]
            self.begin = nn.Conv2d(4, 64, 3, padding=1)
            self.down = nn.ModuleList(
                block(a, b) for a, b in zip([64, *widths], [*widths, 256], strict=True)
            )
            self.up = nn.ModuleList(
                block(a + b, b) for a, b in zip([256, 256, 128], [256, 128, 64], strict=True)
            )
            self.end = nn.Conv2d(64, 4, 3, padding=1)

        def forward(self, x: Any) -> Any:
            x, kept = self.begin(x), []
            for layer in self.down[:3]:
                x = layer(x)
                kept.append(x)
                x = nn.functional.avg_pool2d(x, 2)
            x = self.down[3](x)
            for layer in self.up:
                x = nn.functional.interpolate(x, scale_factor=2.0)
                x = layer(torch.cat([x, kept.pop()], 1))
            return self.end(x)

    model = UNet().cuda().half().eval()
    noise = torch.randn(2, 4, 96, 96, device="cuda").half()

    def job() -> Any:
        with torch.inference_mode():
            x = noise
            for _ in range(4):
                x = x - 0.1 * model(x)
            return x.float().cpu().numpy()

    return job


@workload
def training() -> Job:
    """ResNet-50 of torchvision with automatic mixed precision; a job is a step, and nothing waits
    for the GPU but the loss of every tenth."""
    torch = _torch()
    import torchvision

    model = torchvision.models.resnet50(weights=None).cuda()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    pictures = torch.rand(64, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 1000, (64,), device="cuda")
    steps = 0

    def job() -> Any:
        nonlocal steps
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(model(pictures), labels)
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        steps += 1
        return loss.item() if steps % 10 == 0 else None

    return job


@workload
def multiplying() -> Job:
    """Large products of matrices, a few ahead of the GPU."""
    torch = _torch()
    a = torch.randn(4096, 4096, device="cuda").half()
    b = torch.randn(4096, 4096, device="cuda").half()
    jobs = 0

    def job() -> Any:
        nonlocal jobs
        for _ in range(8):
            c = torch.mm(a, b)
        jobs += 1
        return float(c[0, 0]) if jobs % 4 == 0 else None

    return job


# -- others ------------------------------------------------------------------------------------


@workload
def fourier() -> Job:
    """cuFFT by CuPy."""
    import cupy

    generator = cupy.random.default_rng(1)
    field = generator.random((1024, 1024), dtype=cupy.float32) + 0j

    def job() -> Any:
        x = field
        for _ in range(3):
            x = cupy.fft.ifft2(cupy.fft.fft2(x) * 0.5)
        return cupy.asnumpy(x[0, :16])

    return job


@workload
def jax_layers() -> Job:
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.PRNGKey(1), 9)
    layers = [jax.random.normal(key, (1024, 1024), dtype=jnp.float32) / 32 for key in keys[:8]]
    x = jax.random.normal(keys[8], (512, 1024), dtype=jnp.float32)

    @jax.jit
    def forward(x: Any) -> Any:
        for layer in layers:
            x = jax.nn.gelu(x @ layer)
        return x.mean(axis=1)

    def job() -> Any:
        return jax.device_get(forward(x))

    return job


@workload
def triton_softmax() -> Job:
    torch = _torch()
    from kernels import softmax

    rows = torch.randn(8192, 2048, device="cuda")

    def job() -> Any:
        x = rows
        for _ in range(10):
            x = softmax(x)
        return x[0].cpu().numpy()

    return job


# -- the program -------------------------------------------------------------------------------


def digest(result: Any) -> str:
    data = result.tobytes() if hasattr(result, "tobytes") else repr(result).encode()
    return hashlib.sha256(data).hexdigest()[:12]


def round_of(job: Job, line: str) -> dict[str, Any]:
    """Jobs for so many seconds, from a moment on."""
    at, seconds, period_ms, poisson, seed = map(float, line.split())
    period_s, arrivals = period_ms / 1000, random.Random(int(seed))
    while time.time() < at:
        time.sleep(0.0002)
    since = time.perf_counter()
    due, took, result = since, [], None
    while True:
        if period_s:
            due += arrivals.expovariate(1 / period_s) if poisson else period_s
            while (left := due - time.perf_counter()) > 0:
                time.sleep(left if left < 0.001 else left - 0.0005)
        began = time.perf_counter()
        if began - since >= seconds:
            break
        result = job()
        took.append((time.perf_counter() - began) * 1e6)
        due = max(due, time.perf_counter() - period_s) if period_s else due
    if not period_s:
        import torch

        torch.cuda.synchronize()
    elapsed = time.perf_counter() - since
    told_hash = digest(result) if period_s else ""
    return {"jobs": len(took), "per_s": len(took) / elapsed, "us": took, "hash": told_hash}


def main() -> None:
    job = WORKLOADS[sys.argv[1]]()
    for _ in range(WARM_UP):
        job()
    print(json.dumps({"ready": sys.argv[1]}), flush=True)
    for line in sys.stdin:
        print(json.dumps(round_of(job, line)), flush=True)


if __name__ == "__main__":
    main()

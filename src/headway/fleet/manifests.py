"""Files for other schedulers: the GPU time that each GPU of a machine has to give.

Kubernetes and Slurm count reserved GPU time; the daemon of each GPU enforces it. Machines in, text
out, and nothing else.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.fleet.claims import UNITS

DRIVER = "gpu-time.headway"
"""Kubernetes knows drivers and their device classes by such a name."""
CAPACITY = "gpuTime"
GRES = "headway"
"""Slurm's generic resource for reserved GPU time, in `UNITS`-ths of a GPU."""
MOST_GPUS = 128
"""Kubernetes takes so many devices in a slice."""
FOLDER = "/run/headway"
"""Where the daemon of a machine's first GPU serves; those of the others in folders below."""
_NODE = re.compile(r"(?=.{1,63}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_MODEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


class ManifestError(ValueError):
    """A machine that cannot be written down: one line."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of a cluster and its GPUs, which are alike."""

    name: str
    gpus: int
    model: str = "gpu"


def read_machine(text: str) -> Machine:
    """`NAME:GPUS` or `NAME:GPUS:MODEL`, as people write it. ManifestError says what is wrong."""
    name, _, rest = text.partition(":")
    count, _, model = rest.partition(":")
    if not _NODE.fullmatch(name) or not re.fullmatch(r"[1-9][0-9]{0,2}", count):
        raise ManifestError(
            f"found {text!r}, expected NAME:GPUS or NAME:GPUS:MODEL such as gpu-1:8:NVIDIA-H200, "
            "the name as the scheduler has it, in lower case"
        )
    if int(count) > MOST_GPUS:
        raise ManifestError(f"found {text!r}, expected {MOST_GPUS} GPUs or fewer")
    if model and not _MODEL.fullmatch(model):
        raise ManifestError(f"found {text!r}, expected letters, digits, ., _ and - in the model")
    return Machine(name, int(count), model or "gpu")


def folder_of(gpu: int) -> str:
    """Where the daemon of a GPU serves."""
    return f"{FOLDER}/gpu{gpu}"


# -- Kubernetes ------------------------------------------------------------------------------------


def kubernetes(machines: Sequence[Machine], image: str, version: str) -> list[dict[str, Any]]:
    """A device class, a slice for each machine, and a DaemonSet that serves every GPU of each kind
    of machine; of Kubernetes 1.34 on, with the feature DRAConsumableCapacity (KEP-5075)."""
    counts = sorted({machine.gpus for machine in machines})
    return [
        _device_class(),
        *(_slice(machine, version) for machine in machines),
        *(_daemon_set(count, [m for m in machines if m.gpus == count], image) for count in counts),
        _claim_example(),
    ]


def _device_class() -> dict[str, Any]:
    expression = f'device.driver == "{DRIVER}"'
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": DRIVER},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def _slice(machine: Machine, version: str) -> dict[str, Any]:
    attributes = {"model": {"string": machine.model}, "headway": {"version": version}}
    time = {
        "value": str(UNITS),
        "requestPolicy": {"default": str(UNITS), "validRange": {"min": "1", "step": "1"}},
    }
    devices = [
        {
            "name": f"gpu{number}",
            "attributes": attributes,
            "allowMultipleAllocations": True,
            "capacity": {CAPACITY: time},
        }
        for number in range(machine.gpus)
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{machine.name}-{DRIVER}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": machine.name,
            "pool": {"name": machine.name, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def _daemon_set(count: int, machines: Sequence[Machine], image: str) -> dict[str, Any]:
    name = f"headway-{count}-gpu{'s' if count > 1 else ''}"
    labels = {"app.kubernetes.io/name": "headway", "app.kubernetes.io/instance": name}
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [machine.name]}]}
        for machine in machines
    ]
    required = {"nodeSelectorTerms": terms}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "kube-system", "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "hostPID": True,
                    "hostIPC": True,
                    "affinity": affinity,
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [_container(number, image) for number in range(count)],
                    "volumes": [
                        {
                            "name": "run",
                            "hostPath": {"path": FOLDER, "type": "DirectoryOrCreate"},
                        }
                    ],
                },
            },
        },
    }


def _container(gpu: int, image: str) -> dict[str, Any]:
    """The daemon of one GPU, with one right: to go ahead of ordinary processes."""
    return {
        "name": f"gpu{gpu}",
        "image": image,
        "command": ["headway", "daemon", "--display", "none", "--no-servers"],
        "env": [
            {"name": "HEADWAY_DIR", "value": folder_of(gpu)},
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": str(gpu)},
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": ["SYS_NICE"]},
        },
        "resources": {"limits": {"memory": "1Gi"}},
        "volumeMounts": [{"name": "run", "mountPath": FOLDER}],
    }


def _claim_example() -> dict[str, Any]:
    """What a pod asks for: 6 ms every 10 ms are 6000 of 10000."""
    request = {
        "name": "gpu",
        "exactly": {
            "deviceClassName": DRIVER,
            "capacity": {"requests": {CAPACITY: str(6 * UNITS // 10)}},
        },
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "six-of-ten-ms", "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


KUBERNETES_HEAD = f"""\
# Reserved GPU time for Kubernetes 1.34 or newer with the feature DRAConsumableCapacity. Not tested
# on a real cluster. The slices let the scheduler count GPU time; binding a claim to a pod takes a
# DRA kubelet plugin for the driver {DRIVER}, which Headway does not have. Without one,
# pods start their programs with `headway run`, and the daemons enforce what these ask for: mount
# {FOLDER} and set HEADWAY_DIR to the folder of a GPU in it.
"""


def as_yaml(documents: Sequence[Mapping[str, Any]]) -> str:
    """Documents as YAML, texts in JSON's quotes, which YAML has as well."""
    return KUBERNETES_HEAD + "".join(
        "---\n" + "\n".join(_yaml(document, 0)) + "\n" for document in documents
    )


def _yaml(value: Any, depth: int) -> Iterator[str]:
    pad = "  " * depth
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(inner, Mapping | list) and inner:
                yield f"{pad}{key}:"
                yield from _yaml(inner, depth + 1)
            else:
                yield f"{pad}{key}: {json.dumps(inner)}"
    else:
        for inner in value:
            if isinstance(inner, Mapping) and inner:
                first, *rest = _yaml(inner, depth + 1)
                yield f"{pad}- {first.strip()}"
                yield from rest
            else:
                yield f"{pad}- {json.dumps(inner)}"


# -- Slurm -----------------------------------------------------------------------------------------


def slurm(machines: Sequence[Machine]) -> dict[str, str]:
    """Files by name: `gres.conf`, lines for `slurm.conf`, and the two prologs."""
    head = "# Reserved GPU time by Headway. Not tested on a real cluster.\n"
    resources, nodes = [], []
    for machine in machines:
        kinds = [f"gpu{number}" for number in range(machine.gpus)]
        resources += [
            f"NodeName={machine.name} Name={GRES} Type={kind} Count={UNITS}" for kind in kinds
        ]
        counts = ",".join(f"{GRES}:{kind}:{UNITS}" for kind in kinds)
        nodes.append(f"# NodeName={machine.name} … Gres={counts}")
    return {
        "gres.conf": head + "AutoDetect=off\n" + "\n".join(resources) + "\n",
        "slurm.conf.headway": head
        + f"# {UNITS} parts of each GPU's time; a job asks: --gres={GRES}:gpu0:6000\n"
        + f"GresTypes={GRES}\nProlog=/etc/slurm/headway-prolog\n"
        + "TaskProlog=/etc/slurm/headway-task-prolog\n"
        + "# Add to the lines of nodes that are there:\n"
        + "\n".join(nodes)
        + "\n",
        "headway-prolog": _prolog(),
        "headway-task-prolog": _task_prolog(),
    }


def _prolog() -> str:
    """Run by root on a job's machine before the job: the daemons of its GPUs are there."""
    gres = shlex.quote(rf"{GRES}:\(gpu[0-9]*\):[0-9]*")
    return f"""\
#!/bin/sh
# Starts the daemon of each GPU that the job has time of. A job never fails because of this.
scontrol show job --oneliner "$SLURM_JOB_ID" 2>/dev/null | grep -o {gres} | cut -d: -f2 | sort -u |
while read -r gpu; do
    export HEADWAY_DIR="{FOLDER}/$gpu"
    mkdir -p -m 711 {FOLDER} "$HEADWAY_DIR"
    headway status >/dev/null 2>&1 && continue
    CUDA_VISIBLE_DEVICES="${{gpu#gpu}}" setsid headway daemon --spec /etc/headway.toml \\
        --display none </dev/null >>"$HEADWAY_DIR/daemon.log" 2>&1 &
done
exit 0
"""


def _task_prolog() -> str:
    """Run as the user before each task; what it prints as `export` the task has."""
    gres = shlex.quote(rf"{GRES}:\(gpu[0-9]*\):[0-9]*")
    return f"""\
#!/bin/sh
# The task finds the daemon of its GPU, and sees that GPU alone. It asks for its time by
#   headway run --no-daemon --priority 9 --reserve 6ms/10ms -- PROGRAM
gpu=$(scontrol show job --oneliner "$SLURM_JOB_ID" 2>/dev/null |
    grep -o {gres} | cut -d: -f2 | sort -u)
case $gpu in
gpu[0-9]*[!0-9]* | "") ;;
gpu*) echo "export HEADWAY_DIR={FOLDER}/$gpu"; echo "export CUDA_VISIBLE_DEVICES=${{gpu#gpu}}" ;;
esac
exit 0
"""

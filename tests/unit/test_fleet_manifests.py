"""Files for Kubernetes and Slurm, read by what reads them there: Kubernetes' own schemas, and
Slurm's slurmd."""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

from headway.fleet import manifests
from headway.fleet.claims import UNITS
from headway.fleet.manifests import Machine, ManifestError, read_machine
from headway.view.cli import fleet_manifest

MACHINES = (Machine("gpu-1", 8, "NVIDIA-H200"), Machine("gpu-2", 8), Machine("edge.local", 1))
VERSIONS = ("1.34", "1.37")


def documents() -> list[dict[str, Any]]:
    return manifests.kubernetes(MACHINES, "headway:0.1.0", "0.1.0")


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [document for document in documents() if document["kind"] == kind]


# -- Kubernetes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("document", documents(), ids=lambda d: f"{d['kind']}-{d['metadata']}")
def test_every_document_is_one_that_kubernetes_knows(
    document: dict[str, Any], version: str
) -> None:
    kubernetes_validate.validate(document, version, strict=True)
    wrong = copy.deepcopy(document)
    wrong["spec"]["nonsense"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)


def test_yaml_says_the_same_as_the_documents() -> None:
    text = manifests.as_yaml(documents())
    assert list(yaml.safe_load_all(text)) == documents()
    assert "Not tested on a real cluster" in " ".join(text.replace("#", " ").split())


def test_each_gpu_can_be_given_in_parts_and_no_more_than_there_is() -> None:
    slices = of_kind("ResourceSlice")
    assert {s["spec"]["nodeName"]: len(s["spec"]["devices"]) for s in slices} == {
        "gpu-1": 8,
        "gpu-2": 8,
        "edge.local": 1,
    }
    for device in (device for s in slices for device in s["spec"]["devices"]):
        capacity = device["capacity"][manifests.CAPACITY]
        assert device["allowMultipleAllocations"]
        assert int(capacity["value"]) == UNITS
        assert capacity["requestPolicy"]["default"] == capacity["value"]
    assert all(len(s["metadata"]["name"]) <= 253 for s in slices)


def test_every_machine_has_a_daemon_for_each_of_its_gpus_and_nobody_has_two() -> None:
    served = {}
    for found in of_kind("DaemonSet"):
        pod = found["spec"]["template"]["spec"]
        node = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        for term in node["nodeSelectorTerms"]:
            ((name,),) = [field["values"] for field in term["matchFields"]]
            assert name not in served
            served[name] = {
                env["value"]
                for container in pod["containers"]
                for env in container["env"]
                if env["name"] == "HEADWAY_DIR"
            }
    assert {name: len(folders) for name, folders in served.items()} == {
        "gpu-1": 8,
        "gpu-2": 8,
        "edge.local": 1,
    }


# -- Slurm -----------------------------------------------------------------------------------------


def slurmd(folder: Path, gres: str) -> subprocess.CompletedProcess[str]:
    """What slurmd makes of the generic resources of a machine."""
    program = shutil.which("slurmd", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program is not None, "slurmd is not there; run scripts/install-packages"
    (folder / "gres.conf").write_text(gres)
    counts = ",".join(f"{manifests.GRES}:gpu{n}:{UNITS}" for n in range(8))
    (folder / "slurm.conf").write_text(
        "ClusterName=test\nSlurmctldHost=localhost\nAuthType=auth/none\nCryptoType=crypto/none\n"
        f"SlurmdSpoolDir={folder}\nGresTypes={manifests.GRES}\n"
        f"NodeName=gpu-1 NodeHostname=localhost CPUs=1 Gres={counts}\n"
        "PartitionName=all Nodes=gpu-1\n"
    )
    command = [program, "-f", str(folder / "slurm.conf"), "-N", "gpu-1", "-G"]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)


def test_slurm_reads_the_gpu_time_of_each_gpu_of_its_machine(tmp_path: Path) -> None:
    gres = manifests.slurm([MACHINES[0]])["gres.conf"]
    found = slurmd(tmp_path, gres)
    assert found.returncode == 0, found.stderr
    lines = [line for line in (found.stdout + found.stderr).splitlines() if "Gres Name=" in line]
    assert [line.split("Gres ")[1].split(" ID")[0] for line in lines] == [
        f"Name={manifests.GRES} Type=gpu{n} Count={UNITS}" for n in range(8)
    ]
    assert slurmd(tmp_path, gres + "Nonsense=1\n").returncode != 0


JOB = "JobId=7 JobName=a TresPerNode=gres:headway:gpu3:6000 Comment=x"


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (JOB, ["export HEADWAY_DIR=/run/headway/gpu3", "export CUDA_VISIBLE_DEVICES=3"]),
        ("JobId=7 TresPerNode=gres:gpu:1", []),
        (f"{JOB} gres:headway:gpu4:10", []),  # of two GPUs, which is meant is not known
        ("", []),
    ],
)
def test_a_slurm_task_finds_the_daemon_of_its_gpu(
    tmp_path: Path, job: str, expected: list[str]
) -> None:
    script = tmp_path / "prolog"
    script.write_text(manifests.slurm(MACHINES)["headway-task-prolog"])
    scontrol = tmp_path / "scontrol"  # Slurm's, which answers for a job
    scontrol.write_text(f"#!/bin/sh\necho '{job}'\n")
    scontrol.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    said = subprocess.run(["sh", str(script)], env=env, capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == expected


def test_prologs_are_shell_and_lines_for_slurm_conf_name_every_gpu() -> None:
    files = manifests.slurm(MACHINES)
    for name in ("headway-prolog", "headway-task-prolog"):
        subprocess.run(["sh", "-n"], input=files[name], text=True, check=True)
    assert files["slurm.conf.headway"].count(f":{UNITS}") == 8 + 8 + 1


# -- the command -----------------------------------------------------------------------------------


def test_files_are_written_into_a_folder(tmp_path: Path) -> None:
    words = ["--slurm", "--node", "gpu-1:2", "-o", str(tmp_path / "new" / "folder")]
    result = CliRunner().invoke(fleet_manifest.command, words)
    assert result.exit_code == 0, result.output
    written = {path.name: path for path in (tmp_path / "new" / "folder").iterdir()}
    assert set(written) == set(manifests.slurm([Machine("gpu-1", 2)]))
    assert os.access(written["headway-prolog"], os.X_OK)
    assert not os.access(written["gres.conf"], os.X_OK)


@pytest.mark.parametrize(
    "text", ["", "gpu-1", "gpu-1:", "gpu-1:0", "gpu-1:-1", "gpu-1:x", "GPU:1", "a b:1", "a:999",
             "a:1:b c", ":1", "-a:1", "a..b:1", f"{'a' * 64}:1"],
)  # fmt: skip
def test_a_machine_that_cannot_be_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ManifestError, match=r"\Afound .*expected [^\n]*\Z"):
        read_machine(text)
    result = CliRunner().invoke(fleet_manifest.command, ["--kubernetes", "--node", text])
    assert result.exit_code != 0
    assert "apiVersion" not in result.output


def test_a_machine_is_named_once_and_one_scheduler_is_chosen() -> None:
    for words in (["--slurm", "--kubernetes"], [], ["--slurm", "--node", "a:1", "--node", "a:2"]):
        assert CliRunner().invoke(fleet_manifest.command, words).exit_code != 0

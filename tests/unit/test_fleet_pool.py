"""Studies that are given a pool have the results that they have without one; a cluster that is not
there is told in one line, at once."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from headway.engine.locks.clusters import Clusters
from headway.engine.locks.system import LockSystem
from headway.fleet import joining
from headway.sim.papers import as_dict, figures, run_figure
from headway.sim.study.acceptance import Study, run_study
from headway.sim.study.generators import Recipe


def test_a_study_is_the_same_in_any_pool() -> None:
    study = Study(
        (("r2dglp", LockSystem(Clusters(4, 4, 2, 2), rho=2)),), Recipe(tasks=8), (0.1, 0.2), 15
    )
    with ThreadPoolExecutor(3) as pool:
        spread = run_study(study, pool=pool)
        assert pool.submit(int, "7").result() == 7  # the pool goes on to be its owner's
    assert spread == run_study(study)


def test_a_figure_is_the_same_in_any_pool() -> None:
    figure = figures()["timegraph/fig6"]
    with ThreadPoolExecutor(2) as pool:
        spread = run_figure(figure, (1, 2), pool=pool)
    assert as_dict(spread) == as_dict(run_figure(figure, (1, 2)))


@pytest.mark.parametrize("way", ["nobody listens", "no such host"])
def test_a_cluster_that_is_not_there_is_one_line(way: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens there
        port = taken.getsockname()[1]
        address = f"127.0.0.1:{port}" if way == "nobody listens" else f"nobody.invalid:{port}"
        with pytest.raises(joining.FleetError, match=r"\Aheadway fleet: no Ray [^\n]*\Z") as error:
            joining.connect(address)
    assert address in str(error.value)

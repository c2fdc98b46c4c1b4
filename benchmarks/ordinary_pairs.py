"""Random groups of CUDA programs in the simulator, each in every way: where is a promise broken?

    python -m benchmarks.ordinary_pairs [--groups 100] [--first 0] [--seconds 3]

Prints the groups in which one is, with all ways beside each other, and how many there were. Exit
code 1: there were some. Nothing is measured: virtual time, on the twin of an H200.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed

from headway.sim.study.pairs import Result, study, throughput
from headway.sim.study.ways import PEERS, SLICED


def line(way: str, result: Result, plain: Result) -> str:
    times = f"p50 {result.p50_ns / 1e6:8.2f} ms, p99 {result.p99_ns / 1e6:8.2f} ms"
    return f"  {way:20} {result.jobs:5} jobs, {times}, others {throughput(result, plain):5.2f}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the number of the first group")
    parser.add_argument("--seconds", type=float, default=3.0, help="of virtual time a way")
    parser.add_argument("--all", action="store_true", help="print every group")
    options = parser.parse_args(arguments)
    seeds = range(options.first, options.first + options.groups)
    counts, bad, ahead = Counter[str](), 0, Counter[str]()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        asked = {pool.submit(study, seed, options.seconds): seed for seed in seeds}
        for done in as_completed(asked):  # a slow group hides no other
            seed, (group, found, wrong) = asked[done], done.result()
            bad += bool(wrong)
            counts.update(words.split(" is ")[0] for words in wrong)
            ahead.update(
                ours
                for ours, peers in PEERS.items()
                if all(found[ours].p99_ns < found[peer].p99_ns for peer in peers)
            )
            if wrong or options.all:
                print(f"{seed}: {group.name}", *(f"  ! {words}" for words in wrong), sep="\n")
                for way, result in found.items():
                    print(line(way, result, found[SLICED]), flush=True)
    print(f"{bad} of {len(seeds)} groups with a broken promise", dict(counts))
    print("faster than every peer for the important program:", dict(ahead))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

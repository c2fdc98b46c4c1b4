"""A pool of a cluster's CPUs: studies are spread over Ray as over the processes of one machine."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any, TypeVar

from headway.fleet.joining import LABEL_VERSION, FleetError, connect

T = TypeVar("T")


def _call(function: Callable[..., Any], arguments: tuple[Any, ...], version: str) -> Any:
    """In a worker: what the function makes of these arguments."""
    from headway import __version__

    if __version__ != version:
        raise FleetError(
            f"found Headway {__version__} on a node of the cluster, expected {version}"
        )
    return function(*arguments)


class Pool(concurrent.futures.Executor):
    """Calls functions of Headway's modules in Ray's workers, one CPU each."""

    def __init__(self, address: str | None = None) -> None:
        """Join the cluster at an address. FleetError says why that cannot be."""
        from headway import __version__

        self._ray = connect(address)
        self._version = __version__
        versions = {
            node["Labels"][LABEL_VERSION]
            for node in self._ray.nodes()
            if node["Alive"] and LABEL_VERSION in node.get("Labels", {})
        }
        if other := versions - {__version__}:
            raise FleetError(
                f"headway fleet: found Headway {', '.join(sorted(other))} on nodes of the cluster, "
                f"expected {__version__} as here; install the same version"
            )
        self._remote = self._ray.remote(num_cpus=1, max_retries=3)(_call)
        self._going: dict[concurrent.futures.Future[Any], Any] = {}

    def submit(  # type: ignore[override] # keywords are not needed
        self, function: Callable[..., T], /, *arguments: Any
    ) -> concurrent.futures.Future[T]:
        reference = self._remote.remote(function, arguments, self._version)
        future: concurrent.futures.Future[T] = reference.future()
        self._going[future] = reference
        future.add_done_callback(lambda done: self._going.pop(done, None))
        return future

    def __exit__(self, *_: object) -> None:
        self.shutdown(cancel_futures=True)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster; calls that were not waited for are given up."""
        going = list(self._going.values())
        if cancel_futures:
            for reference in going:
                self._ray.cancel(reference)
        elif wait and going:
            self._ray.wait(going, num_returns=len(going))
        self._ray.shutdown()

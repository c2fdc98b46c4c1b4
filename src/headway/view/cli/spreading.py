"""`--ray ADDRESS`: commands that compute for long spread their work over a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from headway.view.errors import FAILED, UserError

if TYPE_CHECKING:
    from headway.fleet.pool import Pool

ray_option = click.option(
    "--ray",
    metavar="HOST:PORT",
    help="Spread the work over this Ray cluster (auto: the one of this machine).",
)


@contextmanager
def spread(address: str | None) -> Iterator[Pool | None]:
    """The cluster at an address as a pool; None without one. What is wrong is one line."""
    if address is None:
        yield None
        return
    from headway.fleet.joining import FleetError
    from headway.fleet.pool import Pool

    try:
        with Pool(address) as pool:
            yield pool
    except FleetError as error:
        raise UserError(f"--ray: {error}", code=FAILED) from None

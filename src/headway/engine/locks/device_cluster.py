"""A cluster of devices of a system: its locks, its predictor, and where tasks have their state."""

from __future__ import annotations

from headway.engine.locks.affinity import Affinity
from headway.engine.locks.cluster_locks import ClusterLocks
from headway.engine.locks.clusters import Cluster
from headway.engine.locks.predictor import CostPredictor
from headway.engine.locks.system import LockSystem
from headway.engine.locks.topology import Topology


class DeviceCluster:
    """The locks of one cluster of devices, with the predictor that serves them."""

    def __init__(self, system: LockSystem, cluster: Cluster) -> None:
        whole = system.topology()
        devices = cluster.devices
        table = [[whole.distance(a, b) for b in devices] for a in devices]
        settings = system.token_settings(cluster)
        self.topology = Topology(len(devices), table)
        self.predictor = CostPredictor()
        self.affinity = (
            Affinity(self.predictor, self.topology, settings.tokens, len(devices))
            if system.affinity
            else None
        )
        self.locks = ClusterLocks(
            cluster,
            settings,
            copies=system.copies,
            unit_order=system.unit_order,
            affinity=self.affinity,
        )
        self.first = devices[0]

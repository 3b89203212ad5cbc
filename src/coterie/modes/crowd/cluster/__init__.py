"""A crowd on several machines over NATS JetStream, with the same messages and the same code as in one process."""

from coterie.modes.crowd.cluster.broker import Broker, Leases, RunningSession, RunningSessions
from coterie.modes.crowd.cluster.gateway import ClusterClient, ClusterGateway
from coterie.modes.crowd.cluster.services import ContextService, PersonaWorker, TrendsService
from coterie.modes.crowd.cluster.session import ClusterSession, CrowdCluster

__all__ = [
    "Broker",
    "ClusterClient",
    "ClusterGateway",
    "ClusterSession",
    "ContextService",
    "CrowdCluster",
    "Leases",
    "PersonaWorker",
    "RunningSession",
    "RunningSessions",
    "TrendsService",
]

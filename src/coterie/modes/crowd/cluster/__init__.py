"""A room on several machines, over NATS JetStream: the same subjects and shapes, between processes. C2"""

from coterie.modes.crowd.cluster.broker import Broker
from coterie.modes.crowd.cluster.intake import ClusterGateway
from coterie.modes.crowd.cluster.remote import ClusterClient

__all__ = ["Broker", "ClusterGateway", "ClusterClient"]

"""A room on several machines, over NATS JetStream: the same subjects and shapes, between processes. C2"""

from coterie.modes.crowd.cluster.broker import Broker
from coterie.modes.crowd.cluster.intake import Intake
from coterie.modes.crowd.cluster.remote import Remote

__all__ = ["Broker", "Intake", "Remote"]

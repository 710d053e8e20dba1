"""A real Matrix homeserver for tests, crash tests and benchmarks, and the people on it.

The server is Synapse, in a process that is started, killed and restarted at will, and a `Person` speaks plain HTTP to it. It
knows nothing of pytest and nothing of Everturn.
"""

from tests.synapse.people import Person
from tests.synapse.screen import Screen, Shown
from tests.synapse.server import Running, SynapseServer

__all__ = ["Person", "Running", "Screen", "Shown", "SynapseServer"]

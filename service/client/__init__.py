"""The Python client of the HTTP API.

May import: contract, settings.
"""

from service.client.agents import Agent, AgentTrial
from service.client.client import (
    Client,
    DamagedDownload,
    ServiceError,
    ServiceRefused,
    ServiceUnreachable,
)

__all__ = [
    "Agent",
    "AgentTrial",
    "Client",
    "DamagedDownload",
    "ServiceError",
    "ServiceRefused",
    "ServiceUnreachable",
]

"""The Python client of the HTTP API.

May import: contract, settings.
"""

from service.client.client import Client, ServiceError, ServiceRefused, ServiceUnreachable

__all__ = ["Client", "ServiceError", "ServiceRefused", "ServiceUnreachable"]

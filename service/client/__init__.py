"""The Python client of the HTTP API."""

from service.client.client import Client, ServiceError, ServiceRefused, ServiceUnreachable

__all__ = ["Client", "ServiceError", "ServiceRefused", "ServiceUnreachable"]

"""Clients of a server, with the methods of `Cache`: `Client` blocks, `AsyncClient` awaits."""

from pequod.client.asynchronous import AsyncClient
from pequod.client.blocking import Client

__all__ = ["AsyncClient", "Client"]

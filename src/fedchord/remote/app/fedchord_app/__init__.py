"""The two halves of a federation as Flower starts them."""

from fedchord.remote.flower_app import client, server

__all__ = ["client", "server"]

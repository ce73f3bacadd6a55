"""Federations of several machines: both halves of a round, what carries parcels between them, and their files."""

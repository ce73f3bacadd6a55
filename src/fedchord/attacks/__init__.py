"""Hostile clients: what some of them do to their labels, their uploads and the losses they report."""

"""fedchord."""

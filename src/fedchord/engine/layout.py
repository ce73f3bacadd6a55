"""Which form the files of a run have: written into summary.json and into every checkpoint."""

LAYOUT = 2
"""1: notes were sentences, and files did not say their layout."""

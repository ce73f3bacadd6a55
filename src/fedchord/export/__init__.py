"""A model that leaves: one file, or a folder that loads without fedchord."""

"""Synthetic data sets: what a method with the outcome "samples" ends with, how good it is, and what it is good for."""

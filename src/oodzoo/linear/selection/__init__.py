"""Spike-and-slab selection of features."""

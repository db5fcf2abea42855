"""Races: models are dropped after a look at a sample of the images."""

"""Races: extraction that drops models after a look at a sample of the images."""

from __future__ import annotations

from oodzoo.ranking.racing.policy import parse_budget
from oodzoo.ranking.racing.race import Dropped, Race, race, run_race

__all__ = ["Dropped", "Race", "parse_budget", "race", "run_race"]

"""The whole job in one folder: every stage is recorded, and skipped while its inputs stay the same."""

from oodzoo.pipeline.config import RunConfig
from oodzoo.pipeline.driver import run

__all__ = ["RunConfig", "run"]

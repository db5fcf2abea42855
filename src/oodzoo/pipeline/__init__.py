"""The whole pipeline in one folder: stages are recorded, and skipped if nothing has changed."""

from oodzoo.pipeline.config import RunConfig
from oodzoo.pipeline.driver import run

__all__ = ["RunConfig", "run"]

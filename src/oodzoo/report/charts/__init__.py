"""Pictures of a run as SVG: one file for each kind."""

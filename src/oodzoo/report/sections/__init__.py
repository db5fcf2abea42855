"""The parts of the page: one file for each, from the document of a run to words and pictures."""

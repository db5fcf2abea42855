"""Where images with labels and domains come from, one module for each kind of source."""

"""Feature stores on disk: reading, writing, and maintenance."""

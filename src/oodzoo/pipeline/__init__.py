"""The whole job in one folder: every stage recorded, and skipped when nothing has changed."""

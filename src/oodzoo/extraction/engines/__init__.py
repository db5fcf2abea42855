"""Where tasks run: in processes of this machine, one per device, or on a Ray cluster."""

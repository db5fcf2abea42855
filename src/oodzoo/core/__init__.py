"""What every room uses: errors, text and numbers, files, threads, array backends, events."""

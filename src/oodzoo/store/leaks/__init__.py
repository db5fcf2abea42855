"""Near-duplicate images, found by their stored features and confirmed by their pixels."""

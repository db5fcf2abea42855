"""From images to features on disk."""

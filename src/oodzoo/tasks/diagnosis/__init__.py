"""What predictions get right and wrong, by class, output or label, and how sure they are."""

"""Mathematics of linear models: moments, evidence, heads, spike and slab."""

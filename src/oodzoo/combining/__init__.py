"""Combine models: out-of-fold predictions of heads, pools of heads, and the recommended choice."""

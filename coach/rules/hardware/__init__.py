"""Rules about GPUs and links that fail or are slowed down."""

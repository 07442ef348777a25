"""Rules about DeepSpeed."""

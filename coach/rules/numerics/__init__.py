"""Rules about losses and gradients."""

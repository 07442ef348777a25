"""The shared parts of the trainers: data, models, metrics, checkpoints, and how processes start and end.
Never imports coach."""

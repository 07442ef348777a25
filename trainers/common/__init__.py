"""What the trainers share: data, models, metrics, checkpoints, and how processes start and end. Never imports
coach."""

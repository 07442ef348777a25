"""Following jobs while they go on: the live session, its recording, the watch over a launch."""

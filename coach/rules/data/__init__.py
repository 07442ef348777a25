"""Rules about reading data: loaders, storage, samples, checkpoint files."""

"""Rules about the training environment and its node: driver, modules, libraries, files, network."""

"""Jobs and their scripts: which job is a run's, which may be acted upon, what a batch script asks for."""

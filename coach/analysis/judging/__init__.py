"""Order diagnoses and put them into words: no finding, several jobs, ranking."""

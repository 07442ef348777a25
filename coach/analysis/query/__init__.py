"""The filter language, and the tables of the fields of jobs and nodes."""

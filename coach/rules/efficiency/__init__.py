"""Rules about resources that a job asked for and did not use."""

"""What logs say, as data: one row is one wording of a cause, with an example and where it was met."""

"""Log patterns as data: one row is one wording of a cause, with an example and the place where it was
found."""

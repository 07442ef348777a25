"""Evidence from logs that several rules share: endings, error blocks, lost ranks. No rules here."""

"""Every parser of other people's words, with words that nobody would write."""

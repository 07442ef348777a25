"""Every parser of other people's text, with text that no person would write."""

"""From a name to a diagnosis: find the target's files, read them once, run the rules on them."""

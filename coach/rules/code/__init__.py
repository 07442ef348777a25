"""Rules about the program itself: a plain exception, a crash."""

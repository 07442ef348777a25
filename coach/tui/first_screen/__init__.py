"""The parts of the first screen that decide what is shown; the screen itself puts them in their places."""

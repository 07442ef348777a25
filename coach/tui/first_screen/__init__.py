"""The parts of the first screen that choose its content; the screen itself arranges them."""

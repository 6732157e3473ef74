"""Views as lines of text for a terminal: pure, so that tests hold them to the letter."""

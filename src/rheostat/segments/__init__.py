"""Where one model may stop writing and another go on: borders in a text, and what a segment begins with."""

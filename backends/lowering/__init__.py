"""What all chips share on the way from a graph to a program."""

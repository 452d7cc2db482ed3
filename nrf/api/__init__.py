"""What `import nrf` offers, each in one call; a file per stage."""

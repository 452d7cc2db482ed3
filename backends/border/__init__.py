"""What a chip offers and what it gives back."""

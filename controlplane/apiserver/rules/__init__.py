"""What objects of the other built-in kinds must be, and what they say where their author did not."""

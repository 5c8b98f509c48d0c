"""The page to look at."""
